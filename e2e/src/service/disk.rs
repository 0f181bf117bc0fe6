//! A small disk for one service: an ext4 file system in a file, mounted at the service's data directory. Used by
//! [`super::Service`], which drops it last and so unmounts it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A mounted file system. It is unmounted and removed when dropped.
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
        // Lazily: files that a failed test holds open must not prevent the removal of the rest.
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
