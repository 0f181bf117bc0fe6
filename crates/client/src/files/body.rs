//! Content to write into a sandbox.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use tokio::io::AsyncRead;

use super::archive;
use super::ignore::Ignore;
use super::pieces::{PIECE, Writer, read_by, written_by};
use crate::transport::payload::{Payload, Pieces};

/// Content for [`Files::write`](crate::Files::write) and [`Files::unpack`](crate::Files::unpack): text, bytes, a local file or
/// directory, a reader, or a stream. Only text and bytes are held in memory.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # let dir = tempfile::tempdir()?;
/// # let local = dir.path().join("data.bin");
/// # std::fs::write(&local, [1, 2, 3])?;
/// use sandboxd_client::FileBody;
/// sandbox.files().write("text", "some text").await?;
/// sandbox.files().write("bytes", vec![0u8; 1000]).await?;
/// let entry = sandbox.files().write("data.bin", FileBody::file(&local)).await?;
/// assert_eq!(entry.size_bytes, 3);
/// # Ok(()) });
/// ```
#[derive(Clone)]
#[must_use]
pub struct FileBody {
    payload: Payload,
}

impl FileBody {
    /// A local file. It is opened for each attempt to send it.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let missing = sandboxd_client::FileBody::file("/no/such/file");
    /// let error = sandbox.files().write("a", missing).await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::LocalFile);
    /// assert!(error.message().contains("/no/such/file"));
    /// # Ok(()) });
    /// ```
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = Arc::new(path.into());
        Self { payload: Payload::repeatable(move || opened(Arc::clone(&path))) }
    }

    /// A local directory as a tar archive, for [`Files::unpack`](crate::Files::unpack). Symbolic links are kept; sockets, FIFOs and
    /// devices are omitted. The directory may change meanwhile: files that vanish are omitted, and a file that grows or shrinks is
    /// truncated or padded with zeroes to its original length. A file that cannot be read is an error.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("main.py"), "print(1)")?;
    /// # let local = dir.path();
    /// let unpacked = sandbox.files().unpack("project", sandboxd_client::FileBody::directory(local)).await?;
    /// assert_eq!(unpacked.files, 1);
    /// # Ok(()) });
    /// ```
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        let path = Arc::new(path.into());
        let pack = move || {
            let path = Arc::clone(&path);
            written_by(move |to| archive::pack(&path, to))
        };
        Self { payload: Payload::repeatable(pack) }
    }

    /// A local directory as a build context: as [`directory`](Self::directory), without what its `.dockerignore` excludes. `keep` is the
    /// path of a file that is sent in any case.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("Dockerfile"), "FROM ubuntu:24.04")?;
    /// # let project = dir.path();
    /// let context = client.upload_context(sandboxd_client::FileBody::context(project, "Dockerfile")).await?;
    /// assert!(context.size_bytes > 0);
    /// # Ok(()) });
    /// ```
    pub fn context(path: impl Into<PathBuf>, keep: impl Into<String>) -> Self {
        let (path, keep) = (Arc::new(path.into()), Arc::new(keep.into()));
        let pack = move || {
            let (path, keep) = (Arc::clone(&path), Arc::clone(&keep));
            written_by(move |to| {
                let mut ignore = Ignore::read(&path)?;
                ignore.keep(&keep);
                archive::pack_chosen(&path, &ignore, to)
            })
        };
        Self { payload: Payload::repeatable(pack) }
    }

    /// The bytes of a reader. It is read once, so a failure after the first bytes is not retried.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// // Such as tokio::io::stdin().
    /// let reader = tokio::io::AsyncReadExt::take(tokio::io::repeat(b'x'), 1_000_000);
    /// let entry = sandbox.files().write("x", sandboxd_client::FileBody::reader(reader)).await?;
    /// assert_eq!(entry.size_bytes, 1_000_000);
    /// # Ok(()) });
    /// ```
    pub fn reader(reader: impl AsyncRead + Send + 'static) -> Self {
        Self { payload: Payload::once(read_by(reader)) }
    }

    /// The chunks of a stream. It is consumed once, so a failure after the first chunk is not retried.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let pieces = futures_util::stream::iter([Ok("one ".into()), Ok("two".into())]);
    /// sandbox.files().write("a", sandboxd_client::FileBody::stream(pieces)).await?;
    /// assert_eq!(sandbox.files().read("a").text().await?, "one two");
    /// # Ok(()) });
    /// ```
    pub fn stream(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self { payload: Payload::once(pieces.boxed()) }
    }

    /// Calls `report` with the bytes sent so far; a retry starts from zero.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let body = sandboxd_client::FileBody::from(vec![0u8; 1_000_000]).on_progress(|bytes| eprint!("\r{bytes}"));
    /// sandbox.files().write("zeros", body).await?;
    /// # Ok(()) });
    /// ```
    pub fn on_progress(self, report: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let report = Arc::new(report);
        let payload = match self.payload {
            Payload::None => Payload::None,
            Payload::Whole(bytes) => {
                Payload::repeatable(move || counted(cut(bytes.clone()), Arc::clone(&report)))
            }
            Payload::Repeatable(begin) => Payload::repeatable(move || counted(begin(), Arc::clone(&report))),
            Payload::Once(pieces) => {
                let pieces = pieces.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                pieces.map_or(Payload::None, |pieces| Payload::once(counted(pieces, report)))
            }
        };
        Self { payload }
    }

    /// What `write` writes, anew for each attempt.
    pub(super) fn written(write: impl Fn(&mut Writer) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let write = Arc::new(write);
        let begin = move || {
            let write = Arc::clone(&write);
            written_by(move |to| write(to))
        };
        Self { payload: Payload::repeatable(begin) }
    }

    /// Long content is sent in chunks, so that the timeout applies to each chunk.
    pub(crate) fn into_payload(self) -> Payload {
        match self.payload {
            Payload::Whole(bytes) if bytes.len() > PIECE => Payload::repeatable(move || cut(bytes.clone())),
            other => other,
        }
    }
}

macro_rules! whole {
    ($($from:ty => $convert:expr;)+) => {
        $(impl From<$from> for FileBody {
            fn from(content: $from) -> Self {
                let convert: fn($from) -> Bytes = $convert;
                Self { payload: Payload::Whole(convert(content)) }
            }
        })+
    };
}

whole! {
    &str => |text| Bytes::copy_from_slice(text.as_bytes());
    &String => |text| Bytes::copy_from_slice(text.as_bytes());
    &[u8] => Bytes::copy_from_slice;
    String => Bytes::from;
    Vec<u8> => Bytes::from;
    Bytes => |bytes| bytes;
}

fn cut(mut bytes: Bytes) -> Pieces {
    let pieces = std::iter::from_fn(move || {
        let piece = bytes.split_to(bytes.len().min(PIECE));
        (!piece.is_empty()).then_some(Ok(piece))
    });
    futures_util::stream::iter(pieces).boxed()
}

fn counted(pieces: Pieces, report: Arc<impl Fn(u64) + Send + Sync + 'static>) -> Pieces {
    let sent = AtomicU64::new(0);
    let count = move |piece: &Bytes| {
        let bytes = piece.len() as u64;
        report(sent.fetch_add(bytes, Ordering::Relaxed) + bytes);
    };
    pieces.inspect_ok(count).boxed()
}

fn opened(path: Arc<PathBuf>) -> Pieces {
    let open = async move {
        let name = |error: io::Error| archive::named(&path, error);
        let mut file = tokio::fs::File::open(path.as_path()).await.map_err(name)?;
        if file.metadata().await.map_err(name)?.is_dir() {
            return Err(name(io::ErrorKind::IsADirectory.into()));
        }
        file.set_max_buf_size(PIECE);
        Ok(read_by(file))
    };
    futures_util::stream::once(open).try_flatten().boxed()
}
