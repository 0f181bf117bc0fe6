//! Transfer of directories as tar archives.

use std::io;
use std::path::{Path, PathBuf};

use api::{EventKind, Unpacked};
use hyper::Method;

use super::pieces::read_in_thread;
use super::{FileBody, FileStream, Files, tree};
use crate::transport::ApiCall;
use crate::transport::retry::Safety;
use crate::{Error, Result};

impl Files {
    /// Downloads a directory as a tar archive or into a local directory.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("copy");
    /// # sandbox.files().write("project/main.py", "print(1)").parents().await?;
    /// let unpacked = sandbox.files().pack("project").to_directory(&local).await?;
    /// assert_eq!(unpacked.files, 1);
    /// assert_eq!(std::fs::read_to_string(local.join("main.py"))?, "print(1)");
    /// # Ok(()) });
    /// ```
    pub fn pack(&self, path: impl AsRef<Path>) -> Pack {
        Pack { files: self.clone(), path: path.as_ref().into() }
    }

    /// Unpacks a tar archive into a directory, which is created if necessary. The content is [`FileBody::directory`] for a local
    /// directory, or any other archive.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("main.py"), "print(1)")?;
    /// # let local = dir.path();
    /// sandbox.files().unpack("project", sandboxd_client::FileBody::directory(local)).await?;
    /// assert_eq!(sandbox.files().read("project/main.py").text().await?, "print(1)");
    /// # Ok(()) });
    /// ```
    pub fn unpack(&self, path: impl AsRef<Path>, archive: impl Into<FileBody>) -> Unpack {
        Unpack { files: self.clone(), path: path.as_ref().into(), archive: archive.into() }
    }
}

/// A directory to download.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # sandbox.files().write("a.txt", "a").await?;
/// let pack: sandboxd_client::Pack = sandbox.files().pack(".");
/// let archive = pack.stream().await?;
/// # Ok(()) });
/// ```
#[must_use = "a pack does nothing until .stream(), .to_directory() or a similar method is called"]
pub struct Pack {
    files: Files,
    path: Box<Path>,
}

impl Pack {
    /// Streams the directory as a tar archive.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("backup.tar");
    /// sandbox.files().pack("/workspace").stream().await?.to_file(&local).await?;
    /// # Ok(()) });
    /// ```
    pub async fn stream(self) -> Result<FileStream> {
        let call = ApiCall::get(self.files.url("/tar", &[("path", &self.path)], "")).accept("*/*");
        let answer = self.files.sandbox.stream(call).await;
        let answer = answer.map_err(|error| self.files.failed("pack", &self.path, error))?;
        let stream = FileStream::new(&self.files, "pack", &self.path, answer);
        self.files.record_event(
            EventKind::FileRead,
            &self.path.to_string_lossy(),
            &[("isDirectory", true.into())],
        );
        Ok(stream)
    }

    /// Unpacks into a local directory; see [`FileStream::unpack_to`].
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("copy");
    /// sandbox.files().pack("/workspace").to_directory(&local).await?;
    /// assert!(local.is_dir());
    /// # Ok(()) });
    /// ```
    pub async fn to_directory(self, local: impl Into<PathBuf>) -> Result<Unpacked> {
        self.stream().await?.unpack_to(local).await
    }
}

impl FileStream {
    /// Unpacks an archive into a local directory, which is created if necessary. The archive is not trusted: nothing is written outside
    /// the directory, also not through symbolic links; devices, FIFOs and sockets are omitted; owners and set-user-id bits are ignored.
    /// Entries that cannot be created are skipped and reported as an error at the end; what was written before a failure stays.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("copy");
    /// # sandbox.files().write("a.txt", "a").await?;
    /// let archive = sandbox.files().pack("/workspace").stream().await?;
    /// let unpacked = archive.on_progress(|bytes| eprint!("\r{bytes}")).unpack_to(&local).await?;
    /// assert_eq!(unpacked.bytes, 1);
    /// # Ok(()) });
    /// ```
    pub async fn unpack_to(self, local: impl Into<PathBuf>) -> Result<Unpacked> {
        let local = local.into();
        let to = local.clone();
        let unpacked = read_in_thread(self.into_pieces(), move |archive| tree::unpack(archive, &to)).await?;
        unpacked.map_err(|error: io::Error| Error::local(&local, error))
    }
}

/// An archive to unpack; `.await` sends it.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # let dir = tempfile::tempdir()?;
/// # let local = dir.path();
/// let unpack: sandboxd_client::Unpack = sandbox.files().unpack("project", sandboxd_client::FileBody::directory(local));
/// unpack.await?;
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct Unpack {
    files: Files,
    path: Box<Path>,
    archive: FileBody,
}

impl Unpack {
    async fn send(self) -> Result<Unpacked> {
        let url = self.files.url("/tar", &[("path", &self.path)], "");
        // Unpacking twice has the same result.
        let call = ApiCall::new(Method::PUT, url, Safety::Repeatable)
            .payload(self.archive.into_payload(), "application/x-tar");
        let unpacked = self.files.sandbox.json::<Unpacked>(call).await;
        let unpacked = unpacked.map_err(|error| self.files.failed("unpack", &self.path, error))?;
        self.files.record_event(EventKind::FileCreated, &unpacked.path, &[("isDirectory", true.into())]);
        Ok(unpacked)
    }
}

awaited! {
    Unpack -> Unpacked;
}
