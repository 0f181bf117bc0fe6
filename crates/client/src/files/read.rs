//! Reading files, buffered or streamed.

use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use api::{EventKind, FileEntry};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt, try_unfold};
use futures_util::{FutureExt, Stream};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Incoming};
use tokio::io::AsyncWriteExt;

use super::Files;
use super::placement::{self, Attributes};
use crate::transport::{ApiCall, request_id};
use crate::{Error, Result};

/// The service gives up on a silent sandbox after a minute.
const LONGEST_SILENCE: Duration = Duration::from_secs(90);

impl Files {
    /// Reads a file. `.await` returns it in memory; see also [`text`](Read::text), [`stream`](Read::stream) and [`to_file`](Read::to_file).
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("hello.txt", "hello").await?;
    /// let bytes = sandbox.files().read("hello.txt").await?;
    /// assert_eq!(&bytes[..], b"hello");
    /// # Ok(()) });
    /// ```
    pub fn read(&self, path: impl AsRef<Path>) -> Read {
        Read { files: self.clone(), path: path.as_ref().into(), range: None }
    }
}

/// A file to read.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # sandbox.files().write("hello.txt", "hello").await?;
/// assert_eq!(sandbox.files().read("hello.txt").range(1..3).text().await?, "el");
/// # Ok(()) });
/// ```
#[must_use = "a read does nothing unless awaited, or passed to a method such as .text(), .stream() or .to_file()"]
pub struct Read {
    files: Files,
    path: Box<Path>,
    /// The value of the `Range` header.
    range: Option<String>,
}

impl Read {
    /// Reads only these bytes, up to the end of the file. A range that starts after the end, or is empty, fails with
    /// [`InvalidRequest`](crate::Code::InvalidRequest).
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let files = sandbox.files();
    /// files.write("digits", "0123456789").await?;
    /// assert_eq!(files.read("digits").range(7..).text().await?, "789");
    /// assert_eq!(files.read("digits").range(2..=3).text().await?, "23");
    /// assert_eq!(files.read("digits").range(10..).await.unwrap_err().status(), Some(416));
    /// # Ok(()) });
    /// ```
    pub fn range(mut self, range: impl RangeBounds<u64>) -> Self {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        // HTTP has no empty range; the service reports the error.
        let last = match range.end_bound() {
            Bound::Included(last) => last.to_string(),
            Bound::Excluded(0) => "-1".to_owned(),
            Bound::Excluded(behind) => (behind - 1).to_string(),
            Bound::Unbounded => String::new(),
        };
        self.range = Some(format!("bytes={first}-{last}"));
        self
    }

    /// Reads only the last bytes.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("log", "one\ntwo\n").await?;
    /// assert_eq!(sandbox.files().read("log").last(4).text().await?, "two\n");
    /// # Ok(()) });
    /// ```
    pub fn last(mut self, bytes: u64) -> Self {
        self.range = Some(format!("bytes=-{bytes}"));
        self
    }

    /// Streams the file with back-pressure.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("big", vec![1u8; 100_000]).await?;
    /// use futures_util::TryStreamExt;
    /// let mut pieces = sandbox.files().read("big").stream().await?;
    /// let mut total = 0;
    /// while let Some(piece) = pieces.try_next().await? {
    ///     total += piece.len();
    /// }
    /// assert_eq!(total, 100_000);
    /// # Ok(()) });
    /// ```
    pub async fn stream(self) -> Result<FileStream> {
        let mut call = ApiCall::get(self.files.url("", &[("path", &self.path)], "")).accept("*/*");
        if let Some(range) = &self.range {
            call = call.header("range", range)?;
        }
        let answer = self.files.sandbox.stream(call).await;
        let answer = answer.map_err(|error| self.files.failed("read", &self.path, error))?;
        let stream = FileStream::new(&self.files, "read", &self.path, answer);
        let size = stream.length().map(|bytes| ("sizeBytes", bytes.into()));
        self.files.record_event(EventKind::FileRead, &self.path.to_string_lossy(), size.as_slice());
        Ok(stream)
    }

    /// Returns the whole file as text. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("hello.txt", "hello").await?;
    /// assert_eq!(sandbox.files().read("hello.txt").text().await?, "hello");
    /// # Ok(()) });
    /// ```
    pub async fn text(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.send().await?).into_owned())
    }

    /// Writes to a local file, which is replaced once the download is complete. Returns the size in bytes.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("copy");
    /// # sandbox.files().write("hello.txt", "hello").await?;
    /// assert_eq!(sandbox.files().read("hello.txt").to_file(&local).await?, 5);
    /// assert_eq!(std::fs::read_to_string(&local)?, "hello");
    /// # Ok(()) });
    /// ```
    pub async fn to_file(self, local: impl AsRef<Path>) -> Result<u64> {
        self.stream().await?.to_file(local).await
    }

    async fn send(self) -> Result<Bytes> {
        let mut pieces = self.stream().await?;
        let Some(first) = pieces.try_next().await? else { return Ok(Bytes::new()) };
        let Some(second) = pieces.try_next().await? else { return Ok(first) };
        let mut content = BytesMut::from(first);
        content.extend_from_slice(&second);
        while let Some(piece) = pieces.try_next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(content.freeze())
    }
}

awaited! { Read -> Bytes; }

/// A [`Stream`] of the bytes of a file or an archive. An interrupted transfer ends with an error.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # sandbox.files().write("hello.txt", "hello").await?;
/// let stream: sandboxd_client::FileStream = sandbox.files().read("hello.txt").stream().await?;
/// assert_eq!(stream.length(), Some(5));
/// # Ok(()) });
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct FileStream {
    pieces: BoxStream<'static, Result<Bytes>>,
    length: Option<u64>,
    request_id: Option<String>,
}

impl FileStream {
    pub(super) fn new(
        files: &Files,
        operation: &'static str,
        path: &Path,
        answer: Response<Incoming>,
    ) -> Self {
        let (head, body) = answer.into_parts();
        let length = body.size_hint().exact();
        let begin = (body, files.clone(), Box::<Path>::from(path));
        let pieces = try_unfold(begin, move |(mut body, files, path)| async move {
            match next(&mut body).await {
                Ok(piece) => Ok(piece.map(|piece| (piece, (body, files, path)))),
                Err(error) => Err(files.failed(operation, &path, error)),
            }
        });
        Self { pieces: pieces.boxed(), length, request_id: request_id(&head.headers) }
    }

    /// A stream of chunks that were made from those of a response.
    pub(super) fn of_pieces(pieces: BoxStream<'static, Result<Bytes>>, request_id: Option<String>) -> Self {
        Self { pieces, length: None, request_id }
    }

    /// The number of bytes, if it is known.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("hello.txt", "hello").await?;
    /// let stream = sandbox.files().read("hello.txt").range(1..).stream().await?;
    /// assert_eq!(stream.length(), Some(4));
    /// # Ok(()) });
    /// ```
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The request id, as it appears in the log of the service.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("a", "a").await?;
    /// assert!(sandbox.files().read("a").stream().await?.request_id().is_some());
    /// # Ok(()) });
    /// ```
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Calls `report` with the bytes received so far.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("copy");
    /// # sandbox.files().write("a", "a").await?;
    /// let stream = sandbox.files().read("a").stream().await?;
    /// stream.on_progress(|bytes| eprint!("\r{bytes}")).to_file(&local).await?;
    /// # Ok(()) });
    /// ```
    pub fn on_progress(self, mut report: impl FnMut(u64) + Send + 'static) -> Self {
        let mut received = 0;
        let count = move |piece: &Bytes| {
            received += piece.len() as u64;
            report(received);
        };
        Self { pieces: self.pieces.inspect_ok(count).boxed(), ..self }
    }

    /// Writes to a local file, which is replaced once the transfer is complete; a device or FIFO is written to directly. Returns the
    /// number of bytes.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("project.tar");
    /// # sandbox.files().mkdir("project").await?;
    /// sandbox.files().pack("project").stream().await?.to_file(&local).await?;
    /// # Ok(()) });
    /// ```
    pub async fn to_file(self, local: impl AsRef<Path>) -> Result<u64> {
        self.save(local.as_ref(), None).await
    }

    /// As [`to_file`](Self::to_file), with the permission bits and the modification time of the file in the sandbox. Until the transfer is
    /// complete only this user can read it.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # let local = dir.path().join("key");
    /// # let files = sandbox.files();
    /// files.write("key", "secret").mode(0o600).await?;
    /// let entry = files.stat("key").await?;
    /// files.read("key").stream().await?.to_copy(&local, &entry).await?;
    /// # use std::os::unix::fs::PermissionsExt;
    /// assert_eq!(local.metadata()?.permissions().mode() & 0o777, 0o600);
    /// # Ok(()) });
    /// ```
    pub async fn to_copy(self, local: impl AsRef<Path>, of: &FileEntry) -> Result<u64> {
        self.save(local.as_ref(), Some(Attributes::of(of))).await
    }

    async fn save(mut self, local: &Path, attributes: Option<Attributes>) -> Result<u64> {
        let fault = |error: io::Error| Error::local(local, error);
        let destination = DownloadFile::find(local, attributes).map_err(fault)?;
        let mut file = tokio::fs::File::from_std(destination.open().map_err(fault)?);
        let mut bytes = 0;
        while let Some(piece) = self.try_next().await? {
            bytes += piece.len() as u64;
            file.write_all(&piece).await.map_err(fault)?;
        }
        file.flush().await.map_err(fault)?;
        destination.persist(attributes).map_err(fault)?;
        Ok(bytes)
    }

    pub(super) fn into_pieces(self) -> BoxStream<'static, Result<Bytes>> {
        self.pieces
    }
}

impl Stream for FileStream {
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().pieces.as_mut().poll_next(cx)
    }
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>> {
    loop {
        let mut frame = body.frame();
        // Avoids the timer if a chunk is ready.
        let received = match (&mut frame).now_or_never() {
            Some(received) => received,
            None => tokio::time::timeout(LONGEST_SILENCE, frame)
                .await
                .map_err(|_| Error::network(format!("no data for {} s", LONGEST_SILENCE.as_secs())))?,
        };
        let Some(frame) = received else { return Ok(None) };
        let frame = frame.map_err(|error| Error::network("the transfer was interrupted").caused_by(error))?;
        if let Ok(piece) = frame.into_data() {
            return Ok(Some(piece));
        }
    }
}

/// The destination of a download.
enum DownloadFile {
    /// A temporary file until it is complete; removed on drop.
    Beside(tempfile::NamedTempFile, PathBuf),
    /// A device or FIFO.
    Through(PathBuf),
}

impl DownloadFile {
    /// The permissions are those of the file that is replaced, unless it gets others when it is complete.
    fn find(local: &Path, attributes: Option<Attributes>) -> io::Result<Self> {
        let (path, replaced) = match std::fs::metadata(local) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => return Ok(Self::Through(local.into())),
            // A symbolic link is followed, not replaced.
            Ok(found) => (local.canonicalize()?, Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (local.into(), None),
            Err(error) => return Err(error),
        };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if attributes.is_some() {
            let file = placement::temporary(dir)?;
            if let Some(replaced) = replaced {
                placement::own_like(file.as_file(), &replaced)?;
            }
            return Ok(Self::Beside(file, path));
        }
        let permissions = replaced.map(|replaced| replaced.permissions());
        let permissions = permissions.unwrap_or_else(|| std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = tempfile::Builder::new().prefix(".sandbox-").permissions(permissions).tempfile_in(dir)?;
        Ok(Self::Beside(file, path))
    }

    fn open(&self) -> io::Result<std::fs::File> {
        match self {
            Self::Beside(file, _) => file.as_file().try_clone(),
            Self::Through(path) => std::fs::File::options().write(true).open(path),
        }
    }

    fn persist(self, attributes: Option<Attributes>) -> io::Result<()> {
        let Self::Beside(file, path) = self else { return Ok(()) };
        if let Some(attributes) = attributes {
            attributes.apply(file.as_file())?;
        }
        file.persist(path).map(drop).map_err(|error| error.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn range(of: impl RangeBounds<u64>) -> Option<String> {
        let client = crate::Client::builder().url("http://127.0.0.1:9").key("any").build().unwrap();
        client.sandbox("sb_00000000").unwrap().files().read("a").range(of).range
    }

    #[tokio::test]
    async fn ranges_are_those_of_http() {
        let excluded = (Bound::Excluded(1), Bound::Unbounded);
        for (asked, header) in [
            (range(1..3), "bytes=1-2"),
            (range(1..=3), "bytes=1-3"),
            (range(7..), "bytes=7-"),
            (range(..4), "bytes=0-3"),
            (range(..), "bytes=0-"),
            (range(excluded), "bytes=2-"),
            // No valid range: the service refuses it, instead of sending the whole file.
            (range(0..0), "bytes=0--1"),
            (range(5..5), "bytes=5-4"),
            (range(..=u64::MAX), "bytes=0-18446744073709551615"),
        ] {
            assert_eq!(asked.as_deref(), Some(header));
        }
    }

    fn saved(local: &Path, attributes: Option<Attributes>) -> io::Result<()> {
        let destination = DownloadFile::find(local, attributes)?;
        io::Write::write_all(&mut destination.open()?, b"new")?;
        destination.persist(attributes)
    }

    #[test]
    fn a_download_follows_links_and_keeps_the_mode_of_the_file_that_it_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        saved(&link, None).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        saved(&link, Some(Attributes::new(0o600, 5))).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_incomplete_download_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "old").unwrap();
        for attributes in [None, Some(Attributes::new(0o600, 5))] {
            let destination = DownloadFile::find(&file, attributes).unwrap();
            io::Write::write_all(&mut destination.open().unwrap(), b"half").unwrap();
            drop(destination);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_is_no_destination_and_a_device_is_written_directly() {
        let dir = tempfile::tempdir().unwrap();
        let refused = DownloadFile::find(dir.path(), None).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::IsADirectory));
        let device = DownloadFile::find(Path::new("/dev/null"), None).unwrap();
        assert!(matches!(&device, DownloadFile::Through(path) if path == Path::new("/dev/null")));
        saved(Path::new("/dev/null"), Some(Attributes::new(0o600, 5))).unwrap();
        let below_file = DownloadFile::find(Path::new("/dev/null/a"), None).err().map(|error| error.kind());
        assert_eq!(below_file, Some(io::ErrorKind::NotADirectory));
    }
}
