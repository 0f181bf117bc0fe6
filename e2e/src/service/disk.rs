//! A small disk of its own for a service: an ext4 file system in a file, mounted where the service's data are. Called by
//! [`super::Service`], which unmounts it by dropping it last.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A mounted file system. Dropped, it is unmounted and removed.
pub struct SmallDisk {
    image: PathBuf,
    pub mount: PathBuf,
}

impl SmallDisk {
    pub fn new(dir: &Path, megabytes: u64) -> Result<Self> {
        let (image, mount) = (dir.with_extension("disk"), dir.with_extension("mount"));
        std::fs::create_dir_all(&mount)?;
        std::fs::File::create(&image)?.set_len(megabytes << 20)?;
        let disk = Self { image, mount };
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.image))?;
        run(Command::new("mount").args(["-o", "loop"]).args([&disk.image, &disk.mount]))?;
        Ok(disk)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: what a failed test left must not keep the rest from being removed.
        if let Err(error) = run(Command::new("umount").arg("-l").arg(&self.mount)) {
            eprintln!("{error:#}");
        }
        let _ = std::fs::remove_dir(&self.mount);
        let _ = std::fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
