//! The watch of a directory: a stream of changes.

use std::path::Path;

use api::FileChange;

use super::Files;
use crate::execution::stream::EventSource;
use crate::transport::ApiCall;
use crate::{Error, Result};

/// What a [`FileWatch`] delivers.
///
/// ```
/// use sandboxd_client::{FileChange, FileChangeKind, WatchEvent};
/// let change = FileChange { kind: FileChangeKind::Write, path: "/a".to_owned(), raw_path: None };
/// assert_ne!(WatchEvent::Change(change), WatchEvent::Overflow);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    Change(FileChange),
    /// Changes were lost because they were not read in time.
    Overflow,
}

/// An active watch; see [`Files::watch`]. Dropping it ends the watch. A lost connection is an error: changes meanwhile are unknown.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let watch: sandboxd_client::FileWatch = sandbox.files().watch("/workspace", true).await?;
/// # drop(watch);
/// # Ok(()) });
/// ```
pub struct FileWatch {
    source: EventSource,
    is_over: bool,
}

impl Files {
    /// Watches a directory, with `recursive` all directories below it, too. Returns when the watch is active.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let mut watch = sandbox.files().watch("/workspace", false).await?;
    /// # Ok(()) });
    /// ```
    pub async fn watch(&self, path: impl AsRef<Path>, recursive: bool) -> Result<FileWatch> {
        let more = if recursive { "&recursive=true" } else { "" };
        let call =
            ApiCall::get(self.url("/watch", &[("path", path.as_ref())], more)).accept("text/event-stream");
        let response = self.sandbox.stream(call).await.map_err(|error| self.sandbox.failed(error))?;
        let mut watch = FileWatch { source: EventSource::new(response), is_over: false };
        let first = watch.source.next().await?;
        match first {
            Some(event) if event.name == "ready" => Ok(watch),
            Some(event) => Err(failure(&event.data)),
            None => Err(broken_off()),
        }
    }
}

impl FileWatch {
    /// Waits for the next event. `None` when the directory was deleted. Cancel safe.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let mut watch = sandbox.files().watch("/workspace", false).await?;
    /// let soon = std::time::Duration::from_millis(1);
    /// assert!(tokio::time::timeout(soon, watch.next()).await.is_err(), "nothing changes");
    /// # Ok(()) });
    /// ```
    pub async fn next(&mut self) -> Result<Option<WatchEvent>> {
        while !self.is_over {
            let event = self.source.next().await?.ok_or_else(broken_off)?;
            match event.name.as_str() {
                "change" => {
                    let change = serde_json::from_str(&event.data);
                    let change = change.map_err(|error| {
                        Error::unknown(200, "a change cannot be parsed", None).caused_by(error)
                    })?;
                    return Ok(Some(WatchEvent::Change(change)));
                }
                "overflow" => return Ok(Some(WatchEvent::Overflow)),
                "error" => return Err(failure(&event.data)),
                "done" => self.is_over = true,
                _ => {}
            }
        }
        Ok(None)
    }
}

fn failure(data: &str) -> Error {
    let unknown = || Error::unknown(200, "the watch ended with an error that cannot be parsed", None);
    Error::of_event(data).unwrap_or_else(unknown)
}

fn broken_off() -> Error {
    Error::network("the stream ended before the watch did")
}
