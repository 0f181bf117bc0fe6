//! Finds processes that do not use the disk of their sandbox: somebody has replaced the disk under them, as a restore of the data
//! directory does. They keep the earlier file mounted, also when it is deleted. The recovery asks for them.

use std::collections::HashSet;
use std::io;

use api::SandboxId;

use crate::cgroup::{Cgroups, Population};
use crate::loopdev::{self, FileId};
use crate::paths::Paths;
use crate::settings::Settings;

/// Sandboxes with processes that use another file than the disk. No sandbox may start meanwhile.
pub fn find(settings: &Settings, cgroups: &Cgroups) -> io::Result<Vec<SandboxId>> {
    let attached = loopdev::attached_files()?;
    let mut found = Vec::new();
    for id in cgroups.sandboxes()? {
        if cgroups.population(id.as_str())? == Population::Empty {
            continue;
        }
        let disk = FileId::of(&Paths::of(settings, &id).disk())?;
        if has_replaced_disk(disk, &attached) {
            found.push(id);
        }
    }
    Ok(found)
}

/// Whether the disk of a sandbox with processes is another file than the one they use: that is mounted, so a loop device is attached to
/// it.
fn has_replaced_disk(disk: Option<FileId>, attached: &HashSet<FileId>) -> bool {
    disk.is_none_or(|disk| !attached.contains(&disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_not_attached_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let id = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            FileId::of(&path).unwrap()
        };
        let (mounted, restored) = (id("mounted"), id("restored"));
        let attached = HashSet::from_iter(mounted);
        assert!(!has_replaced_disk(mounted, &attached));
        assert!(has_replaced_disk(restored, &attached));
        // The restored data directory lacks it.
        assert!(has_replaced_disk(None, &attached));
    }
}
