//! Files of a sandbox, accessed as its root user. Contents are streamed, and directories are listed in pages, so memory use is
//! bounded.

mod archive;
mod below;
mod body;
mod bounded;
mod changes;
mod ignore;
mod list;
mod local_tree;
mod merge;
mod pack;
mod pieces;
mod placement;
mod read;
mod record;
mod state;
mod tree;
mod watch;
mod write;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use api::{EventKind, FileDeleted, FileEntry, FileExists};
use hyper::Method;
use serde_json::Value;

use crate::sandbox::Sandbox;
use crate::transport::retry::Safety;
use crate::transport::{ApiCall, encoded};
use crate::{Error, Result};

pub use body::FileBody;
pub use list::{FileListing, ListFiles};
pub use pack::{Pack, Unpack};
pub use read::{FileStream, Read};
pub use record::UploadRecord;
pub use watch::{FileWatch, WatchEvent};
pub use write::Write;

impl Sandbox {
    /// Accesses the files of the sandbox. Paths are absolute, or relative to the working directory of the sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let files = sandbox.files();
    /// files.write("notes/today.txt", "buy milk\n").parents().await?;
    /// assert_eq!(files.read("notes/today.txt").text().await?, "buy milk\n");
    /// # Ok(()) });
    /// ```
    pub fn files(&self) -> Files {
        Files { sandbox: self.clone(), auto_resume: true }
    }
}

/// The files of a sandbox; see [`Sandbox::files`].
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let files = sandbox.files();
/// let error = files.read("nothing").await.unwrap_err();
/// assert_eq!(error.code(), sandboxd_client::Code::FileNotFound);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Files {
    sandbox: Sandbox,
    auto_resume: bool,
}

impl Files {
    /// Fails with [`InvalidState`](crate::Code::InvalidState) if the sandbox is paused, instead of resuming it.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.pause().await?;
    /// let error = sandbox.files().without_resume().exists("/").await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::InvalidState);
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn without_resume(mut self) -> Self {
        self.auto_resume = false;
        self
    }

    /// Returns the metadata of a path. Does not follow a symbolic link; see [`stat_target`](Self::stat_target).
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.files().write("a.txt", "hello").await?;
    /// let entry = sandbox.files().stat("a.txt").await?;
    /// assert_eq!((entry.path.as_str(), entry.size_bytes), ("/workspace/a.txt", 5));
    /// # Ok(()) });
    /// ```
    pub async fn stat(&self, path: impl AsRef<Path>) -> Result<FileEntry> {
        self.ask(ApiCall::get(self.url("/stat", &[("path", path.as_ref())], ""))).await
    }

    /// Returns the metadata of a path, following symbolic links.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert!(sandbox.files().stat_target("/").await?.is_directory);
    /// # Ok(()) });
    /// ```
    pub async fn stat_target(&self, path: impl AsRef<Path>) -> Result<FileEntry> {
        self.ask(ApiCall::get(self.url("/stat", &[("path", path.as_ref())], "&follow=true"))).await
    }

    /// Whether a path exists. Symbolic links are not followed: a dangling link counts as existing.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert!(!sandbox.files().exists("a.txt").await?);
    /// # Ok(()) });
    /// ```
    pub async fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        let call = ApiCall::get(self.url("/exists", &[("path", path.as_ref())], ""));
        self.ask(call).await.map(|found: FileExists| found.exists)
    }

    /// Creates a directory.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let entry = sandbox.files().mkdir("src/deep").recursive().await?;
    /// assert!(entry.is_directory);
    /// # Ok(()) });
    /// ```
    pub fn mkdir(&self, path: impl AsRef<Path>) -> MakeDirectory {
        MakeDirectory { files: self.clone(), path: path.as_ref().into(), mode: None, recursive: false }
    }

    /// Moves a file or directory. `to` is the new path of the entry, not a directory to move it into.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("a.txt", "a").await?;
    /// let entry = sandbox.files().rename("a.txt", "b.txt").await?;
    /// assert_eq!(entry.name, "b.txt");
    /// # Ok(()) });
    /// ```
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Move {
        Move { files: self.clone(), from: from.as_ref().into(), to: to.as_ref().into(), overwrite: false }
    }

    /// Deletes a path, without following a symbolic link. Returns the number of files, directories and links deleted.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.files().write("dir/a.txt", "a").parents().await?;
    /// assert_eq!(sandbox.files().delete("dir").await.unwrap_err().code(), sandboxd_client::Code::DirectoryNotEmpty);
    /// assert_eq!(sandbox.files().delete("dir").recursive().await?, 2);
    /// # Ok(()) });
    /// ```
    pub fn delete(&self, path: impl AsRef<Path>) -> Delete {
        Delete { files: self.clone(), path: path.as_ref().into(), recursive: false }
    }

    /// The URL path of an operation.
    fn url(&self, verb: &str, paths: &[(&str, &Path)], more: &str) -> String {
        let mut query = String::new();
        for (name, path) in paths {
            let and = if query.is_empty() { '?' } else { '&' };
            query.push_str(&format!("{and}{name}={}", encoded(path.as_os_str().as_bytes())));
        }
        let resume = if self.auto_resume { "" } else { "&autoResume=false" };
        self.sandbox.path(&format!("/files{verb}{query}{more}{resume}"))
    }

    /// Sends a call without recording it in a run.
    async fn ask<T: serde::de::DeserializeOwned>(&self, call: ApiCall) -> Result<T> {
        self.sandbox.report(call).await
    }

    fn record_event(&self, kind: EventKind, path: &str, more: &[(&str, Value)]) {
        let data = [&[("path", path.into())], more].concat();
        self.sandbox.record_event(kind, &data);
    }

    fn record_entry(&self, entry: &FileEntry) {
        let size = ("sizeBytes", entry.size_bytes.into());
        let is_directory = ("isDirectory", entry.is_directory.into());
        self.record_event(EventKind::FileCreated, &entry.path, &[size, is_directory]);
    }

    /// Records a failed operation.
    fn failed(&self, operation: &str, path: &Path, error: Error) -> Error {
        let data = [
            ("operation", operation.into()),
            ("code", error.code_name().into()),
            ("message", error.message().into()),
        ];
        self.record_event(EventKind::FileError, &path.to_string_lossy(), &data);
        self.sandbox.failed(error)
    }
}

awaited! {
    MakeDirectory -> FileEntry;
    Move -> FileEntry;
    Delete -> u64;
}

/// A directory to create; `.await` sends the request.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let entry = sandbox.files().mkdir("private").mode(0o700).await?;
/// assert_eq!(entry.mode, "0700");
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct MakeDirectory {
    files: Files,
    path: Box<Path>,
    mode: Option<u32>,
    recursive: bool,
}

impl MakeDirectory {
    /// Creates missing parents too, and succeeds if the directory exists.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.files().mkdir("a/b").recursive().await?;
    /// sandbox.files().mkdir("a/b").recursive().await?;
    /// # Ok(()) });
    /// ```
    pub fn recursive(mut self) -> Self {
        self.recursive = true;
        self
    }

    /// Sets the mode, by default 0755.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.files().mkdir("shared").mode(0o1777).await?;
    /// # Ok(()) });
    /// ```
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    async fn send(self) -> Result<FileEntry> {
        let mut more = if self.recursive { "&recursive=true" } else { "" }.to_owned();
        more.push_str(&mode(self.mode));
        let safety = if self.recursive { Safety::Repeatable } else { Safety::AfterAnswer };
        let url = self.files.url("/mkdir", &[("path", &self.path)], &more);
        let created = self.files.sandbox.json::<FileEntry>(ApiCall::new(Method::POST, url, safety)).await;
        let entry = created.map_err(|error| self.files.failed("mkdir", &self.path, error))?;
        self.files.record_entry(&entry);
        Ok(entry)
    }
}

/// The mode as a query parameter.
fn mode(mode: Option<u32>) -> String {
    mode.map(|mode| format!("&mode={mode:03o}")).unwrap_or_default()
}

/// A move; `.await` sends the request.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # let files = sandbox.files();
/// # files.write("a", "a").await?;
/// # files.write("b", "b").await?;
/// assert_eq!(files.rename("a", "b").await.unwrap_err().code(), sandboxd_client::Code::FileExists);
/// files.rename("a", "b").overwrite().await?;
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct Move {
    files: Files,
    from: Box<Path>,
    to: Box<Path>,
    overwrite: bool,
}

impl Move {
    /// Replaces an existing file or an empty directory.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("new", "a").await?;
    /// sandbox.files().rename("new", "current").overwrite().await?;
    /// # Ok(()) });
    /// ```
    pub fn overwrite(mut self) -> Self {
        self.overwrite = true;
        self
    }

    async fn send(self) -> Result<FileEntry> {
        let more = if self.overwrite { "&overwrite=true" } else { "" };
        let url = self.files.url("/move", &[("from", &self.from), ("to", &self.to)], more);
        let call = ApiCall::new(Method::POST, url, Safety::AfterAnswer);
        let moved = self.files.sandbox.json::<FileEntry>(call).await;
        let entry = moved.map_err(|error| self.files.failed("move", &self.from, error))?;
        self.files.record_event(EventKind::FileDeleted, &self.from.to_string_lossy(), &[]);
        self.files.record_entry(&entry);
        Ok(entry)
    }
}

/// A deletion; `.await` sends the request.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # sandbox.files().write("a.txt", "a").await?;
/// assert_eq!(sandbox.files().delete("a.txt").await?, 1);
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct Delete {
    files: Files,
    path: Box<Path>,
    recursive: bool,
}

impl Delete {
    /// Deletes a directory with its contents.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().mkdir("dir").await?;
    /// sandbox.files().delete("dir").recursive().await?;
    /// # Ok(()) });
    /// ```
    pub fn recursive(mut self) -> Self {
        self.recursive = true;
        self
    }

    async fn send(self) -> Result<u64> {
        let more = if self.recursive { "&recursive=true" } else { "" };
        let url = self.files.url("", &[("path", &self.path)], more);
        let deleted = self
            .files
            .sandbox
            .json::<FileDeleted>(ApiCall::new(Method::DELETE, url, Safety::AfterAnswer))
            .await;
        let deleted = deleted.map_err(|error| self.files.failed("delete", &self.path, error))?;
        self.files.record_event(EventKind::FileDeleted, &deleted.path, &[]);
        Ok(deleted.deleted)
    }
}
