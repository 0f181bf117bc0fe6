//! The directory in which contexts arrive, and the bounds of writing there.
//!
//! While a file grows, the room on the disk is checked again for each [`CHECK_BYTES`]: uploads that begin together cannot use the
//! reserve of the host. A file is removed when it is dropped, and by the next daemon if this one is killed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use permits::SharedPermits;
use tempfile::{NamedTempFile, TempPath};
use tokio_util::sync::CancellationToken;

use crate::context::uploads::{ContextUpload, Uploads};
use crate::context::{Context, Hashes};
use crate::error::BuilderError;
use crate::interruptible::interruptible;

/// How the names of files begin that are not complete, or wait for their build.
pub const PREFIX: &str = "incoming-";
/// Bytes that a file grows by without a check of the disk.
const CHECK_BYTES: u64 = 1 << 20;
/// Archives that are read at a time, each with an index of up to 25 MB and a processor. One of each account.
const READERS: usize = 4;
/// The limit of each account, in contexts of the largest size. It applies separately to uploads in progress, to uploaded contexts that
/// wait for a build, and to contexts of queued and running builds.
pub const LARGEST_PER_ACCOUNT: u64 = 4;

/// Fails if the file system has less room than the host reserves.
pub type CheckRoom = Box<dyn Fn(u64) -> Result<(), BuilderError> + Send + Sync>;

/// Where contexts arrive.
pub struct Spool {
    dir: PathBuf,
    /// Of a context, without compression.
    pub largest_bytes: u64,
    uploads: Arc<Uploads>,
    readers: SharedPermits,
    check_room: CheckRoom,
}

/// A file of the spool that grows.
pub struct SpoolFile {
    spool: Arc<Spool>,
    file: NamedTempFile,
    bytes: u64,
    unchecked_bytes: u64,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Spool {
    /// `largest_bytes` bounds one context, and some of them bound what an account writes at a time.
    pub fn new(dir: PathBuf, largest_bytes: u64, check_room: CheckRoom) -> Self {
        let uploads = Arc::new(Uploads::new(LARGEST_PER_ACCOUNT.saturating_mul(largest_bytes)));
        Self { dir, largest_bytes, uploads, readers: SharedPermits::new(READERS, 1), check_room }
    }

    /// Begins to write something for an account.
    pub fn begin(&self, account: &str) -> Result<ContextUpload, BuilderError> {
        self.check()?;
        self.uploads.begin(account)
    }

    /// Fails if the host has no room for more.
    pub fn check(&self) -> Result<(), BuilderError> {
        let found = rustix::fs::statvfs(&self.dir).map_err(io::Error::from)?;
        (self.check_room)(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// A new file. Blocks.
    pub fn create(self: &Arc<Self>) -> Result<SpoolFile, BuilderError> {
        Ok(SpoolFile { spool: Arc::clone(self), file: self.new_file()?, bytes: 0, unchecked_bytes: 0 })
    }

    /// A new file that counts for no upload. Blocks.
    pub fn new_file(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(PREFIX).tempfile_in(&self.dir)
    }

    /// Reads archives of an account when it is its turn.
    pub async fn read<T: Send + 'static>(
        &self,
        account: &str,
        work: impl FnOnce(&CancellationToken) -> Result<T, BuilderError> + Send + 'static,
    ) -> Result<T, BuilderError> {
        let permit = self.readers.acquire(account).await;
        interruptible(move |stopped| {
            // Until the work has ended, also if nobody waits for it.
            let _permit = permit;
            work(stopped)
        })
        .await
    }
}

impl SpoolFile {
    /// Appends bytes, which count for the upload. Blocks.
    pub fn append(&mut self, bytes: &[u8], upload: &mut ContextUpload) -> Result<(), BuilderError> {
        let (length, most) = (bytes.len() as u64, self.spool.largest_bytes);
        self.bytes += length;
        if self.bytes > most {
            return Err(BuilderError::Context(format!(
                "is larger than {} MB, the limit of this service",
                most >> 20
            )));
        }
        upload.add(length)?;
        self.unchecked_bytes += length;
        if self.unchecked_bytes >= CHECK_BYTES {
            self.unchecked_bytes = 0;
            self.spool.check()?;
        }
        Ok(self.file.write_all(bytes)?)
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the file is until it is dropped or stored.
    pub fn path(&self) -> PathBuf {
        self.file.path().to_owned()
    }

    /// Makes a plain archive durable and checks it. Blocks.
    pub fn store(self, stopped: &CancellationToken) -> Result<StoredContext, BuilderError> {
        self.file.as_file().sync_all()?;
        let digest = Context::read(self.path(), Hashes::Compute, stopped)?.digest();
        Ok(StoredContext { size_bytes: self.bytes, file: Arc::new(self.file.into_temp_path()), digest })
    }
}

/// A complete context on the disk.
#[derive(Debug, Clone)]
pub struct StoredContext {
    /// Removed with the last clone.
    file: Arc<TempPath>,
    /// Identifies the content.
    pub(crate) digest: [u8; 20],
    /// Without compression.
    pub size_bytes: u64,
}

impl StoredContext {
    /// The context with its index. Blocks.
    pub(crate) fn read(&self, hashes: Hashes, stopped: &CancellationToken) -> Result<Context, BuilderError> {
        Context::read(self.file.to_path_buf(), hashes, stopped)
    }

    /// Gives the file to a template. Blocks.
    pub(crate) fn link_to(&self, path: &Path) -> io::Result<()> {
        // The old name is removed with the last clone.
        std::fs::hard_link(&*self.file, path)
    }
}

#[cfg(test)]
pub mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A spool in the directory of temporary files.
    pub fn spool(largest_bytes: u64) -> Spool {
        Spool::new(std::env::temp_dir(), largest_bytes, Box::new(|_| Ok(())))
    }

    /// A spool in a directory of its own.
    pub fn spool_with(
        largest_bytes: u64,
        check_room: impl Fn(u64) -> Result<(), BuilderError> + Send + Sync + 'static,
    ) -> (Spool, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (Spool::new(dir.path().to_owned(), largest_bytes, Box::new(check_room)), dir)
    }

    pub fn files_in(dir: &TempDir) -> usize {
        std::fs::read_dir(dir.path()).unwrap().count()
    }
}
