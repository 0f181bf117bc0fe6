//! Uploads that are recorded, so that what the sandbox has changed can be copied back. Called by programs, such as `sbx run -v`.

use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use api::{FileEntry, Unpacked};

use super::pieces::read_in_thread;
use super::placement::Attributes;
use super::state::{DigestReader, EntryState, PERMISSIONS, Sent, SentEntries};
use super::{FileBody, FileStream, archive, changes, merge};
use crate::{Error, Result};

/// Records what an upload has sent, so that [`FileStream::merge_directory`] and [`FileStream::merge_file`] copy back only what the sandbox
/// has changed. Holds the path and a digest of each file in memory.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # let dir = tempfile::tempdir()?;
/// # let local = dir.path();
/// # std::fs::write(local.join("input"), "41")?;
/// let record = sandboxd_client::UploadRecord::new();
/// sandbox.files().unpack("/workspace", record.directory(local)).await?;
/// sandbox.files().write("/workspace/output", "42").await?;
/// // Edited while the sandbox works.
/// std::fs::write(local.join("input"), "40")?;
/// let merged = sandbox.files().pack("/workspace").stream().await?.merge_directory(&record).await?;
/// assert_eq!(merged.files, 1);
/// assert_eq!(std::fs::read_to_string(local.join("output"))?, "42");
/// assert_eq!(std::fs::read_to_string(local.join("input"))?, "40");
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, Default)]
pub struct UploadRecord {
    upload: Arc<Mutex<Option<RecordedUpload>>>,
}

/// The entries of an upload, and the local directory that has them.
#[derive(Debug, Clone)]
struct RecordedUpload {
    root: PathBuf,
    sent: SentEntries,
}

impl UploadRecord {
    /// An empty record, for one upload.
    ///
    /// ```
    /// let record = sandboxd_client::UploadRecord::new();
    /// # drop(record);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`FileBody::directory`], and records what is sent.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path();
    /// let record = sandboxd_client::UploadRecord::new();
    /// sandbox.files().unpack("project", record.directory(local)).await?;
    /// # Ok(()) });
    /// ```
    pub fn directory(&self, path: impl Into<PathBuf>) -> FileBody {
        let (record, root) = (self.clone(), path.into());
        FileBody::written(move |to| {
            let sent = archive::pack_recorded(&root, to)?;
            record.store(RecordedUpload { root: root.clone(), sent });
            Ok(())
        })
    }

    /// As [`FileBody::file`] for a regular file, and records what is sent.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("notes");
    /// # std::fs::write(&local, "notes")?;
    /// let record = sandboxd_client::UploadRecord::new();
    /// sandbox.files().write("notes", record.file(&local)).await?;
    /// # Ok(()) });
    /// ```
    pub fn file(&self, path: impl Into<PathBuf>) -> FileBody {
        let (record, path) = (self.clone(), path.into());
        FileBody::written(move |to| {
            let name = |error: io::Error| archive::named(&path, error);
            // A symbolic link is followed, and not replaced later.
            let path = path.canonicalize().map_err(name)?;
            let file = File::open(&path).map_err(name)?;
            let mode = file.metadata().map_err(name)?.permissions().mode() & PERMISSIONS;
            let mut content = DigestReader::new(file);
            io::copy(&mut content, to).map_err(name)?;
            let sent = Sent { state: EntryState::File(content.content()), mode };
            if let (Some(root), Some(name)) = (path.parent(), path.file_name()) {
                record.store(RecordedUpload {
                    root: root.into(),
                    sent: SentEntries::from([(name.into(), sent)]),
                });
            }
            Ok(())
        })
    }

    /// Replaces the record of an earlier attempt.
    fn store(&self, upload: RecordedUpload) {
        *self.upload.lock().unwrap_or_else(PoisonError::into_inner) = Some(upload);
    }

    /// Fails before the upload.
    fn upload(&self) -> Result<RecordedUpload> {
        let upload = self.upload.lock().unwrap_or_else(PoisonError::into_inner).clone();
        upload.ok_or_else(|| Error::local_content("the record is empty: nothing was uploaded"))
    }
}

impl FileStream {
    /// The files and links of a packed directory that the sandbox has created or changed since the recorded upload, by their paths in the
    /// directory. Nothing is written. `None` if the archive has more than `most` bytes, of which no more are read then.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("a"), "sent")?;
    /// # let project = dir.path();
    /// let record = sandboxd_client::UploadRecord::new();
    /// let files = sandbox.files();
    /// files.unpack("/workspace", record.directory(project)).await?;
    /// sandbox.execute("echo new > b").await?;
    /// let changed = files.pack("/workspace").stream().await?.changes_since(&record, 1 << 20).await?;
    /// assert_eq!(changed.unwrap(), [std::path::Path::new("b")]);
    /// # Ok(()) });
    /// ```
    pub async fn changes_since(self, record: &UploadRecord, most: u64) -> Result<Option<Vec<PathBuf>>> {
        let RecordedUpload { root, sent } = record.upload()?;
        let pieces = self.into_pieces();
        let changed =
            read_in_thread(pieces, move |archive| changes::changed_in_archive(archive, &sent, most)).await?;
        changed.map_err(|error: io::Error| Error::local(&root, error))
    }

    /// The same for the content of a file that was uploaded: its name if it has changed.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let config = dir.path().join("config");
    /// # std::fs::write(&config, "sent")?;
    /// let record = sandboxd_client::UploadRecord::new();
    /// let files = sandbox.files();
    /// files.write("config", record.file(&config)).await?;
    /// let changed = files.read("config").stream().await?.file_changes_since(&record, 1 << 20).await?;
    /// assert_eq!(changed, Some(Vec::new()));
    /// # Ok(()) });
    /// ```
    pub async fn file_changes_since(self, record: &UploadRecord, most: u64) -> Result<Option<Vec<PathBuf>>> {
        let RecordedUpload { root, sent } = record.upload()?;
        let pieces = self.into_pieces();
        let changed = read_in_thread(pieces, move |from| changes::changed_file(from, &sent, most)).await?;
        changed.map_err(|error: io::Error| Error::local(&root, error))
    }

    /// Copies what the sandbox has changed since the recorded upload back into the local directory. Entries that it has not changed are
    /// not touched, also if they were changed or deleted locally meanwhile, and nothing is deleted. A changed file keeps owner and
    /// group, and its mode unless the sandbox has changed that. What was changed on both sides stays, the version of the sandbox is written
    /// beside it as `NAME.from-sandbox`, and the call fails at the end with an error that names it. The archive is trusted as little
    /// as by [`unpack_to`](Self::unpack_to).
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path();
    /// # std::fs::write(local.join("a"), "a")?;
    /// # let record = sandboxd_client::UploadRecord::new();
    /// # sandbox.files().unpack("/workspace", record.directory(local)).await?;
    /// let merged = sandbox.files().pack("/workspace").stream().await?.merge_directory(&record).await?;
    /// assert_eq!(merged.files, 0, "nothing has changed");
    /// # Ok(()) });
    /// ```
    pub async fn merge_directory(self, record: &UploadRecord) -> Result<Unpacked> {
        let RecordedUpload { root, sent } = record.upload()?;
        let local = root.clone();
        let pieces = self.into_pieces();
        let merged =
            read_in_thread(pieces, move |archive| merge::merge_archive(archive, &root, &sent)).await?;
        merged.map_err(|error: io::Error| Error::local(&local, error))
    }

    /// Copies a single file back, by the rules of [`merge_directory`](Self::merge_directory). `entry` describes the file in the sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("notes");
    /// # std::fs::write(&local, "old")?;
    /// # let record = sandboxd_client::UploadRecord::new();
    /// let files = sandbox.files();
    /// files.write("notes", record.file(&local)).await?;
    /// files.write("notes", "new").await?;
    /// let entry = files.stat_target("notes").await?;
    /// files.read("notes").stream().await?.merge_file(&record, &entry).await?;
    /// assert_eq!(std::fs::read_to_string(&local)?, "new");
    /// # Ok(()) });
    /// ```
    pub async fn merge_file(self, record: &UploadRecord, entry: &FileEntry) -> Result<Unpacked> {
        let RecordedUpload { root, sent } = record.upload()?;
        let (local, attributes) = (root.clone(), Attributes::of(entry));
        let size = self.length().unwrap_or(entry.size_bytes);
        let pieces = self.into_pieces();
        let merged =
            read_in_thread(pieces, move |from| merge::merge_file(from, &root, &sent, size, attributes))
                .await?;
        merged.map_err(|error: io::Error| Error::local(&local, error))
    }
}
