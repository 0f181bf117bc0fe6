//! The paths of a desktop as a layer: clients of E2B's desktops start noVNC from `/opt/noVNC`, and Debian has it elsewhere.
//!
//! The layer is built at every pull, without the network, and is always the same.

use std::sync::Arc;

use tar::{Builder, EntryType};

use super::header;
use crate::fault::Fault;
use crate::job::Job;
use crate::layers::Slot;
use crate::unpack::{Whiteouts, unpack};

/// Where clients look for noVNC, and where Debian's package `novnc` has it.
const NOVNC: (&str, &str) = ("opt/noVNC", "/usr/share/novnc");

pub(super) async fn layer(job: &Job) -> Result<Arc<Slot>, Fault> {
    let tar = tar().map_err(Fault::io("assemble the layer of the desktop"))?;
    let (unpacked, scratch) =
        job.unpack_with(Whiteouts::Refuse, move |tree, rules| unpack(tar.as_slice(), tree, rules)).await?;
    job.add_layer(&unpacked.diff_id, scratch).await
}

fn tar() -> std::io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for directory in ["./", "opt/"] {
        tar.append_data(&mut header(EntryType::Directory, 0o755), directory, std::io::empty())?;
    }
    let (path, target) = NOVNC;
    tar.append_link(&mut header(EntryType::Symlink, 0o777), path, target)?;
    tar.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_has_the_link_to_novnc() {
        let content = tar().unwrap();
        let mut archive = tar::Archive::new(content.as_slice());
        let links: Vec<(String, String)> = archive
            .entries()
            .unwrap()
            .map(Result::unwrap)
            .filter(|entry| entry.header().entry_type() == EntryType::Symlink)
            .map(|entry| {
                let target = entry.link_name().unwrap().unwrap().display().to_string();
                (entry.path().unwrap().display().to_string(), target)
            })
            .collect();
        assert_eq!(links, [("opt/noVNC".to_owned(), "/usr/share/novnc".to_owned())]);
    }
}
