//! Whole directories, which travel as tar archives.

use std::io;
use std::path::{Path, PathBuf};

use api::{EventKind, Unpacked};
use hyper::Method;

use super::pieces::read_in_thread;
use super::{FileBody, FileStream, Files, awaited, tree};
use crate::retry::Safety;
use crate::transport::Call;
use crate::{Error, Result};

impl Files {
    /// A directory with all in it, as a tar archive or in a directory of this machine.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
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

    /// Unpacks a tar archive into a directory, which is made if it is not there: [`FileBody::directory`] for one of this machine, or
    /// any other content that is an archive.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
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

/// A directory that is being packed.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let sandbox = client.create("ubuntu:24.04").await?;
/// # sandbox.files().write("a.txt", "a").await?;
/// let pack: sandboxd_client::Pack = sandbox.files().pack(".");
/// let archive = pack.stream().await?;
/// # Ok(()) });
/// ```
#[must_use = "it is sent by what says how it is to be had"]
pub struct Pack {
    files: Files,
    path: Box<Path>,
}

impl Pack {
    /// As an archive, as it comes.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("backup.tar");
    /// sandbox.files().pack("/workspace").stream().await?.to_file(&local).await?;
    /// # Ok(()) });
    /// ```
    pub async fn stream(self) -> Result<FileStream> {
        let call = Call::get(self.files.url("/tar", &[("path", &self.path)], "")).accept("*/*");
        let answer = self.files.sandbox.stream(call).await;
        let answer = answer.map_err(|error| self.files.failed("pack", &self.path, error))?;
        let stream = FileStream::new(&self.files, "pack", &self.path, answer);
        self.files.note(EventKind::FileRead, &self.path.to_string_lossy(), &[("isDirectory", true.into())]);
        Ok(stream)
    }

    /// Into a directory of this machine; see [`FileStream::unpack_to`].
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
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
    /// Unpacks an archive into a directory of this machine, which is made if it is not there. What comes out of a sandbox is not
    /// trusted: nothing is written outside of the directory, not through links either; devices, fifos and sockets are left out;
    /// owners and set-user-id bits are not taken over. What cannot be made is passed over, and told as an error when the rest is there;
    /// what was written before a failure stays.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
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
        unpacked.map_err(|error: io::Error| Error::local(&local, &error))
    }
}

/// An archive that is being unpacked; `.await` does it.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let sandbox = client.create("ubuntu:24.04").await?;
/// # let dir = tempfile::tempdir()?;
/// # let local = dir.path();
/// let unpack: sandboxd_client::Unpack = sandbox.files().unpack("project", sandboxd_client::FileBody::directory(local));
/// unpack.await?;
/// # Ok(()) });
/// ```
#[must_use = "it is sent by .await"]
pub struct Unpack {
    files: Files,
    path: Box<Path>,
    archive: FileBody,
}

impl Unpack {
    async fn send(self) -> Result<Unpacked> {
        let url = self.files.url("/tar", &[("path", &self.path)], "");
        // Twice is the same directory.
        let call = Call::new(Method::PUT, url, Safety::Repeatable)
            .payload(self.archive.into_payload(), "application/x-tar");
        let unpacked = self.files.sandbox.json::<Unpacked>(call).await;
        let unpacked = unpacked.map_err(|error| self.files.failed("unpack", &self.path, error))?;
        self.files.note(EventKind::FileCreated, &unpacked.path, &[("isDirectory", true.into())]);
        Ok(unpacked)
    }
}

awaited! {
    Unpack -> Unpacked;
}
