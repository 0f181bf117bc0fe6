//! The volumes of `sbx run -v`: copies into the sandbox, and with `:rw` of what the sandbox has changed back. Called by `run`. A failure
//! while copying back leaves the local files as they were, except those that were copied before.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Error, Result, bail, ensure};
use sandboxd_client::{FileBody, Sandbox, UploadRecord};

use super::owner::NewOwner;
use super::transfer::{MODE_BITS, local_names};
use crate::cli::{Volume, VolumeChanges, owner};
use crate::output::note;
use crate::progress::ProgressLine;
use crate::table::printable;

/// The most bytes of a volume that are read only to say what has changed.
const MOST_TO_COMPARE: u64 = 64 << 20;
/// The most names in a message.
const SHOWN_NAMES: usize = 5;
/// The most characters of a name in a message.
const SHOWN_CHARACTERS: usize = 100;

/// Fails if a volume does not exist here, or looks like a named volume of Docker, before anything is created.
pub fn check_volumes(volumes: &[Volume]) -> Result<()> {
    for Volume { local, inside, .. } in volumes {
        let name = local.display();
        match std::fs::metadata(local) {
            Ok(found) if found.is_dir() && is_bare_name(local) => bail!(
                "-v {name}:{} would be a named volume in Docker, and there are no named volumes: write -v ./{name}:{} to copy the directory \
                 {name} of this machine; 'sbx snapshot create' keeps the disk of a sandbox for later ones",
                inside.display(),
                inside.display()
            ),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound && is_bare_name(local) => {
                bail!(
                    "there is no file or directory {name} here, and no named volumes: -v copies ./{name} if it exists, and 'sbx snapshot create' \
                     stores the disk of a sandbox"
                );
            }
            Err(error) => return Err(error).with_context(|| local.display().to_string()),
        }
    }
    Ok(())
}

/// Whether Docker would take this for the name of a volume.
fn is_bare_name(local: &Path) -> bool {
    let name = local.as_os_str().as_bytes();
    !name.contains(&b'/') && !matches!(name, b"." | b"..")
}

/// A volume that is in the sandbox.
pub struct CopiedVolume<'a> {
    volume: &'a Volume,
    local: LocalKind,
    record: UploadRecord,
    sent_bytes: u64,
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
    /// Copies a volume into the sandbox, and gives it to the user. Missing directories above it are created.
    pub async fn copy_in(sandbox: &Sandbox, volume: &'a Volume, user: Option<&str>) -> Result<Self> {
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
            LocalKind::Directory if volume.changes != VolumeChanges::Dropped => record.directory(path),
            LocalKind::File if volume.changes != VolumeChanges::Dropped => record.file(path),
            LocalKind::Directory => FileBody::directory(path),
            LocalKind::File | LocalKind::Stream => FileBody::file(path),
        };
        let progress = progress_of(volume, found.is_file().then_some(found.len()));
        let (sent, report) = (Arc::new(AtomicU64::new(0)), progress.callback());
        let count = Arc::clone(&sent);
        let body = body.on_progress(move |bytes| {
            count.store(bytes, Ordering::Relaxed);
            report(bytes);
        });
        let files = sandbox.files();
        let copied = if local == LocalKind::Directory {
            files.unpack(&volume.inside, body).await.map(drop)
        } else {
            let mode = found.permissions().mode() & MODE_BITS;
            files.write(&volume.inside, body).mode(mode).parents().await.map(drop)
        };
        progress.done();
        copied?;
        if let Some(user) = user {
            give(sandbox, volume, local, user).await?;
        }
        Ok(Self { volume, local, record, sent_bytes: sent.load(Ordering::Relaxed) })
    }

    /// Copies back what the sandbox has changed, or says what it has not copied back.
    pub async fn copy_out(&self, sandbox: &Sandbox) -> Result<()> {
        match self.volume.changes {
            VolumeChanges::CopiedBack => self.copy_back(sandbox).await,
            VolumeChanges::Dropped => Ok(()),
            // It would be read only to say that it is too large.
            VolumeChanges::Reported if self.sent_bytes > MOST_TO_COMPARE => Ok(()),
            VolumeChanges::Reported => {
                // A message is not worth a failure: the command may have removed the directory.
                if let Ok(changed) = self.changes(sandbox).await
                    && let Some(text) = changes_text(self.volume, changed.as_deref())
                {
                    note(&text);
                }
                Ok(())
            }
        }
    }

    /// The names of what the sandbox has changed. `None` if there is too much to compare.
    async fn changes(&self, sandbox: &Sandbox) -> sandboxd_client::Result<Option<Vec<PathBuf>>> {
        let (files, inside) = (sandbox.files(), &self.volume.inside);
        match self.local {
            LocalKind::Directory => {
                files.pack(inside).stream().await?.changes_since(&self.record, MOST_TO_COMPARE).await
            }
            LocalKind::File => {
                files.read(inside).stream().await?.file_changes_since(&self.record, MOST_TO_COMPARE).await
            }
            LocalKind::Stream => Ok(Some(Vec::new())),
        }
    }

    async fn copy_back(&self, sandbox: &Sandbox) -> Result<()> {
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

/// Gives a volume to the user of the command, who could not change it otherwise. Other files of a directory that the image has keep their owner.
async fn give(sandbox: &Sandbox, volume: &Volume, local: LocalKind, user: &str) -> Result<()> {
    let owner = NewOwner::new(sandbox, &owner(user).map_err(Error::msg)?);
    if local != LocalKind::Directory {
        return owner.own(std::slice::from_ref(&volume.inside)).await;
    }
    let names = local_names(&volume.local)?;
    if volume.inside.parent().is_some() {
        owner.own_directory(&volume.inside).await?;
    }
    owner.own(&names.into_iter().map(|name| volume.inside.join(name)).collect::<Vec<_>>()).await
}

fn progress_of(volume: &Volume, size: Option<u64>) -> ProgressLine {
    let name = volume.local.file_name().unwrap_or(volume.local.as_os_str());
    ProgressLine::new(&name.to_string_lossy(), size)
}

/// What to say about changes that are not copied back. `changed`: `None` if they are not known.
fn changes_text(volume: &Volume, changed: Option<&[PathBuf]>) -> Option<String> {
    let inside = volume.inside.display();
    let Some(changed) = changed else {
        return Some(format!(
            "sbx: {inside} is too large to look for changes, and none are copied back; ':rw' at the end of -v copies them back, ':ro' omits \
             this line"
        ));
    };
    let shown: Vec<String> = changed.iter().take(SHOWN_NAMES).map(|name| shown_name(name)).collect();
    let more = match changed.len().saturating_sub(SHOWN_NAMES) {
        0 if shown.is_empty() => return None,
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "sbx: changed in {inside} and not copied back: {}{more}; ':rw' at the end of -v copies changes back",
        shown.join(", ")
    ))
}

/// A name that a sandbox has chosen, on one line and not too long.
fn shown_name(name: &Path) -> String {
    let name = printable(&name.to_string_lossy());
    let mut shown: String = name.chars().take(SHOWN_CHARACTERS).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(local: &str) -> Volume {
        Volume { local: local.into(), inside: "/w".into(), changes: VolumeChanges::Reported }
    }

    #[test]
    fn changes_that_are_lost_are_named() {
        let text = |names: &[&str]| {
            let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            changes_text(&volume("."), Some(&names))
        };
        assert_eq!(text(&[]), None);
        assert!(text(&["a\x1b", "b"]).unwrap().contains("not copied back: a\u{fffd}, b; ':rw'"));
        let long = "ü".repeat(4000);
        let shown = format!("not copied back: {}…, \u{fffd}b; ':rw'", "ü".repeat(SHOWN_CHARACTERS));
        assert!(text(&[long.as_str(), "\u{202e}b"]).unwrap().contains(&shown));
        assert!(text(&["a", "b", "c", "d", "e", "f", "g"]).unwrap().contains("d, e and 2 more;"));
        assert!(changes_text(&volume("."), None).unwrap().contains("':ro' omits"));
    }

    #[test]
    fn a_volume_without_a_path_is_not_a_named_volume() {
        let error = |local: &str| format!("{:#}", check_volumes(&[volume(local)]).unwrap_err());
        assert!(error("no-such-volume").contains("no named volumes"));
        assert!(error("/no/such/path").starts_with("/no/such/path: "));
        assert!(check_volumes(&[volume(".")]).is_ok());
        // The directory of the crate, in which its tests run.
        let refused = error("src");
        assert!(refused.contains("no named volumes") && refused.contains("-v ./src:/w"), "{refused}");
        for local in ["./src", "src/", "..", "Cargo.toml"] {
            assert!(check_volumes(&[volume(local)]).is_ok(), "{local}");
        }
    }
}
