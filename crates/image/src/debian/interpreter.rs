//! The code interpreter as a layer: the program of `packaging/code-interpreter`, which is part of the daemon's binary.
//!
//! The layer is built at every pull, without the network, and has the same content for the same daemon.

use std::sync::Arc;

use tar::{Builder, EntryType};

use super::header;
use crate::fault::Fault;
use crate::job::Job;
use crate::layers::Slot;
use crate::unpack::{Whiteouts, unpack};

macro_rules! files {
    ($($path:literal $mode:literal $file:literal,)+) => {
        &[$(($path, $mode, include_bytes!(concat!("../../../../packaging/code-interpreter/", $file)))),+]
    };
}

/// Paths, modes and contents.
const FILES: &[(&str, u32, &[u8])] = files![
    "usr/local/bin/code-interpreter" 0o755 "code-interpreter",
    "usr/local/bin/code-interpreter-kernel" 0o755 "code-interpreter-kernel",
    "usr/local/lib/code-interpreter/code_interpreter/__init__.py" 0o644 "code_interpreter/__init__.py",
    "usr/local/lib/code-interpreter/code_interpreter/__main__.py" 0o644 "code_interpreter/__main__.py",
    "usr/local/lib/code-interpreter/code_interpreter/bash_kernel.py" 0o644 "code_interpreter/bash_kernel.py",
    "usr/local/lib/code-interpreter/code_interpreter/context.py" 0o644 "code_interpreter/context.py",
    "usr/local/lib/code-interpreter/code_interpreter/javascript_child.js" 0o644 "code_interpreter/javascript_child.js",
    "usr/local/lib/code-interpreter/code_interpreter/javascript_kernel.py" 0o644 "code_interpreter/javascript_kernel.py",
    "usr/local/lib/code-interpreter/code_interpreter/kernel.py" 0o644 "code_interpreter/kernel.py",
    "usr/local/lib/code-interpreter/code_interpreter/launch.py" 0o644 "code_interpreter/launch.py",
    "usr/local/lib/code-interpreter/code_interpreter/output.py" 0o644 "code_interpreter/output.py",
    "usr/local/lib/code-interpreter/code_interpreter/pipe_kernel.py" 0o644 "code_interpreter/pipe_kernel.py",
    "usr/local/lib/code-interpreter/code_interpreter/python_kernel.py" 0o644 "code_interpreter/python_kernel.py",
    "usr/local/lib/code-interpreter/code_interpreter/server.py" 0o644 "code_interpreter/server.py",
    "usr/local/share/jupyter/kernels/sandboxd-bash/kernel.json" 0o644 "kernels/sandboxd-bash/kernel.json",
    "usr/local/share/jupyter/kernels/sandboxd-javascript/kernel.json" 0o644 "kernels/sandboxd-javascript/kernel.json",
    "usr/local/share/jupyter/kernels/sandboxd-python/kernel.json" 0o644 "kernels/sandboxd-python/kernel.json",
];

pub(super) async fn layer(job: &Job) -> Result<Arc<Slot>, Fault> {
    let tar = tar().map_err(Fault::io("assemble the layer of the code interpreter"))?;
    let (unpacked, scratch) =
        job.unpack_with(Whiteouts::Refuse, move |tree, rules| unpack(tar.as_slice(), tree, rules)).await?;
    job.add_layer(&unpacked.diff_id, scratch).await
}

fn tar() -> std::io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    let mut dirs = vec!["./".to_owned()];
    for (path, mode, content) in FILES {
        for (end, _) in path.match_indices('/') {
            let dir = &path[..=end];
            if !dirs.iter().any(|known| known == dir) {
                dirs.push(dir.to_owned());
                tar.append_data(&mut header(EntryType::Directory, 0o755), dir, std::io::empty())?;
            }
        }
        let mut file = header(EntryType::Regular, *mode);
        file.set_size(content.len() as u64);
        tar.append_data(&mut file, path, *content)?;
    }
    tar.into_inner()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_layer_has_every_file_of_the_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/code-interpreter");
        let names = |dir: &str| {
            let entries = std::fs::read_dir(root.join(dir)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| !name.starts_with('_') || name.ends_with(".py")).collect::<BTreeSet<_>>()
        };
        let in_layer = FILES.iter().filter_map(|(path, ..)| {
            path.strip_prefix("usr/local/lib/code-interpreter/code_interpreter/").map(str::to_owned)
        });
        assert_eq!(in_layer.collect::<BTreeSet<_>>(), names("code_interpreter"));
        assert_eq!(
            FILES.iter().filter(|(path, ..)| path.ends_with("kernel.json")).count(),
            names("kernels").len()
        );
        assert_eq!(tar().unwrap(), tar().unwrap());
    }
}
