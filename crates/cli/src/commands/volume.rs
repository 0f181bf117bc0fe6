//! The volumes of `sbx run -v`: copies into the sandbox, and with `:rw` of what the sandbox has changed back. Called by `run`. A failure
//! while copying back leaves the local files as they were, except those that were copied before.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use sandboxd_client::{FileBody, Sandbox, UploadRecord};

use crate::cli::Volume;
use crate::progress::ProgressLine;

/// A volume that is in the sandbox.
pub struct CopiedVolume<'a> {
    volume: &'a Volume,
    local: LocalKind,
    record: UploadRecord,
}

/// What a volume is on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LocalKind {
    Directory,
    File,
    /// A FIFO or a device, which can be read only.
    Stream,
}

impl<'a> CopiedVolume<'a> {
    /// Copies a volume into the sandbox. Missing directories above it are created.
    pub async fn copy_in(sandbox: &Sandbox, volume: &'a Volume) -> Result<Self> {
        let path = &volume.local;
        let found = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        let local = if found.is_dir() {
            LocalKind::Directory
        } else if found.is_file() {
            LocalKind::File
        } else {
            LocalKind::Stream
        };
        let record = UploadRecord::new();
        let body = match local {
            LocalKind::Directory if volume.back => record.directory(path),
            LocalKind::File if volume.back => record.file(path),
            LocalKind::Directory => FileBody::directory(path),
            LocalKind::File | LocalKind::Stream => FileBody::file(path),
        };
        let progress = progress_of(volume, found.is_file().then_some(found.len()));
        let (files, body) = (sandbox.files(), body.on_progress(progress.callback()));
        let copied = if local == LocalKind::Directory {
            files.unpack(&volume.inside, body).await.map(drop)
        } else {
            let mode = found.permissions().mode() & 0o777;
            files.write(&volume.inside, body).mode(mode).parents().await.map(drop)
        };
        progress.done();
        copied?;
        Ok(Self { volume, local, record })
    }

    /// Copies back what the sandbox has changed, if the volume is to be copied back.
    pub async fn copy_out(&self, sandbox: &Sandbox) -> Result<()> {
        if !self.volume.back {
            return Ok(());
        }
        let (files, inside) = (sandbox.files(), &self.volume.inside);
        let found = files.stat_target(inside).await?;
        let expected = if self.local == LocalKind::Directory { "directory" } else { "file" };
        ensure!(
            found.is_directory == (self.local == LocalKind::Directory),
            "{} is no longer a {expected} in the sandbox",
            inside.display()
        );
        let progress = progress_of(self.volume, (!found.is_directory).then_some(found.size_bytes));
        let copied = match self.local {
            LocalKind::Directory => {
                let archive = files.pack(inside).stream().await?.on_progress(progress.callback());
                archive.merge_directory(&self.record).await.map(drop)
            }
            LocalKind::File => {
                let content = files.read(inside).stream().await?.on_progress(progress.callback());
                content.merge_file(&self.record, &found).await.map(drop)
            }
            LocalKind::Stream => {
                let content = files.read(inside).stream().await?.on_progress(progress.callback());
                content.to_file(&self.volume.local).await.map(drop)
            }
        };
        progress.done();
        copied?;
        Ok(())
    }
}

fn progress_of(volume: &Volume, size: Option<u64>) -> ProgressLine {
    let name = volume.local.file_name().unwrap_or(volume.local.as_os_str());
    ProgressLine::new(&name.to_string_lossy(), size)
}
