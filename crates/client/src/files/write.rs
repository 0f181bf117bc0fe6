//! Writing files.

use std::path::Path;

use api::FileEntry;
use hyper::Method;

use super::{FileBody, Files, mode};
use crate::Result;
use crate::transport::ApiCall;
use crate::transport::retry::Safety;

impl Files {
    /// Writes a file of any size, atomically: an existing file is replaced when the upload is complete, and is unchanged if it fails.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let entry = sandbox.files().write("hello.txt", "hello").await?;
    /// assert_eq!((entry.size_bytes, entry.mode.as_str()), (5, "0644"));
    /// # Ok(()) });
    /// ```
    pub fn write(&self, path: impl AsRef<Path>, content: impl Into<FileBody>) -> Write {
        let (files, path) = (self.clone(), path.as_ref().into());
        Write { files, path, content: content.into(), mode: None, parents: false }
    }
}

/// A file to write; `.await` sends it.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// sandbox.files().write("bin/hello", "#!/bin/sh\necho hello\n").mode(0o755).parents().await?;
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct Write {
    files: Files,
    path: Box<Path>,
    content: FileBody,
    mode: Option<u32>,
    parents: bool,
}

impl Write {
    /// Sets the mode. The default is that of the existing file, or 0644.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let entry = sandbox.files().write("key", "secret").mode(0o600).await?;
    /// assert_eq!(entry.mode, "0600");
    /// # Ok(()) });
    /// ```
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Creates missing parent directories.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.files().write("a/b/c.txt", "c").parents().await?;
    /// # Ok(()) });
    /// ```
    pub fn parents(mut self) -> Self {
        self.parents = true;
        self
    }

    async fn send(self) -> Result<FileEntry> {
        let mut more = mode(self.mode);
        if self.parents {
            more.push_str("&parents=true");
        }
        let url = self.files.url("", &[("path", &self.path)], &more);
        // Writing twice has the same result.
        let call = ApiCall::new(Method::PUT, url, Safety::Repeatable)
            .payload(self.content.into_payload(), "application/octet-stream");
        let written = self.files.sandbox.json::<FileEntry>(call).await;
        let entry = written.map_err(|error| self.files.failed("write", &self.path, error))?;
        self.files.record_entry(&entry);
        Ok(entry)
    }
}

awaited! {
    Write -> FileEntry;
}
