//! The tar archive that a copy sends into a sandbox. Contents are read while they are sent.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use dockerfile::Copy;
use tarball::{BoundedTar, Packed, SMALL_WINDOW_LOG, TarLimits};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::context::format::Format;
use crate::context::index::{ContextEntry, EntryKind, MAX_PATH};
use crate::copy::search::Search;
use crate::copy::{CopiedContent, Selection};
use crate::error::BuildError;

const PIECE: usize = 128 * 1024;
/// Pieces on their way.
const PIECES: usize = 4;
const FILE_MODE: u32 = 0o644;

/// What an archive that `ADD` unpacks may have. Nothing of it is stored on the host; the bounds limit the work of the daemon.
const UNPACKED: TarLimits =
    TarLimits { unpacked_bytes: 20 << 30, ratio: 1000, entries: 1_000_000, name_bytes: 128 << 20 };

/// Starts to write the archive, and returns its pieces. The last item is an error if it is incomplete. The writer ends soon after the
/// receiver is dropped.
pub fn send(
    context: Arc<Context>,
    copy: Copy,
    renamed: Option<String>,
) -> mpsc::Receiver<Result<Bytes, BuildError>> {
    let (sender, pieces) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let ended = write(&context, &copy, renamed.as_deref(), &sender, UNPACKED);
        if let Err(WriteError::Failed(error)) = ended {
            // The receiver may be gone.
            let _ = sender.blocking_send(Err(error));
        } else if let Err(WriteError::Io(error)) = ended
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            tracing::error!(%error, "cannot read a build context");
            let _ = sender.blocking_send(Err(BuildError::new("the build context cannot be read")));
        }
    });
    pieces
}

type PieceSender = mpsc::Sender<Result<Bytes, BuildError>>;

fn write(
    context: &Context,
    copy: &Copy,
    renamed: Option<&str>,
    sender: &PieceSender,
    unpacked: TarLimits,
) -> Result<(), WriteError> {
    let is_stopped = || sender.is_closed();
    let selection = Selection::find(context, copy, &mut Search::new(&is_stopped))?;
    let writer = PieceWriter { sender: sender.clone(), piece: Vec::with_capacity(PIECE) };
    let writer = tar::Builder::new(writer);
    let mut archive = Archive { context, mode: copy.mode, sender, unpacked, writer };
    for (path, content) in selection.files(context, copy) {
        archive.add(renamed.unwrap_or(path), content)?;
    }
    Ok(archive.writer.into_inner()?.flush()?)
}

enum WriteError {
    Failed(BuildError),
    Io(io::Error),
}

impl From<BuildError> for WriteError {
    fn from(error: BuildError) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

struct Archive<'a> {
    context: &'a Context,
    mode: Option<u32>,
    sender: &'a PieceSender,
    unpacked: TarLimits,
    writer: tar::Builder<PieceWriter>,
}

impl Archive<'_> {
    fn add(&mut self, path: &str, content: CopiedContent<'_>) -> Result<(), WriteError> {
        match content {
            CopiedContent::Inline(text) => {
                let mut header = header(tar::EntryType::Regular, self.mode.unwrap_or(FILE_MODE), 0);
                header.set_size(text.len() as u64);
                Ok(self.writer.append_data(&mut header, path, text.as_bytes())?)
            }
            CopiedContent::Entry(entry) => self.add_entry(path, &entry),
            CopiedContent::Archive(entry, format) => match entry.kind {
                EntryKind::File { offset, size, .. } => self.extract(path, format, offset, size),
                _ => self.add_entry(path, &entry),
            },
        }
    }

    fn add_entry(&mut self, path: &str, entry: &ContextEntry<'_>) -> Result<(), WriteError> {
        let mode = self.mode.unwrap_or(entry.mode);
        match &entry.kind {
            EntryKind::Directory => {
                let mut header = header(tar::EntryType::Directory, mode, entry.modified_s);
                Ok(self.writer.append_data(&mut header, path, io::empty())?)
            }
            EntryKind::Link { target } => {
                let mut header = header(tar::EntryType::Symlink, mode, entry.modified_s);
                Ok(self.writer.append_link(&mut header, path, target)?)
            }
            EntryKind::File { offset, size, .. } => {
                let mut header = header(tar::EntryType::Regular, mode, entry.modified_s);
                header.set_size(*size);
                let content = BufReader::with_capacity(PIECE, self.context.open(*offset, *size)?);
                Ok(self.writer.append_data(&mut header, path, content)?)
            }
        }
    }

    /// Adds the entries of an archive.
    fn extract(&mut self, path: &str, format: Format, offset: u64, size: u64) -> Result<(), WriteError> {
        let failed = |reason: String| BuildError::new(format!("cannot unpack '{path}': {reason}"));
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe => WriteError::Io(error),
            _ => failed(error.to_string()).into(),
        };
        if matches!(format, Format::Bzip2 | Format::Xz) {
            let remedy = "use COPY and unpack it by RUN, or compress it with gzip or zstd";
            return Err(failed(format!("bzip2 and xz are not supported; {remedy}")).into());
        }
        let packed = Packed::open(self.context.open(offset, size)?, SMALL_WINDOW_LOG).map_err(unreadable)?;
        let packed_bytes = packed.packed_bytes();
        let watched = Watched { content: packed, sender: self.sender };
        let bounded = BoundedTar::new(watched, Some(packed_bytes), self.unpacked);
        let bounds = bounded.bounds();
        let mut archive = tar::Archive::new(bounded);
        let mut entries = archive.entries().map_err(unreadable)?;
        while let Some(mut entry) = bounds.next(&mut entries).map_err(unreadable)? {
            // Before they are copied: nothing can have such a name.
            let longest = entry.path_bytes().len().max(entry.link_name_bytes().map_or(0, |link| link.len()));
            if longest > MAX_PATH {
                return Err(failed(format!("it has a path with {longest} bytes; allowed: {MAX_PATH}")).into());
            }
            let inner = entry.path().map_err(unreadable)?.into_owned();
            let mut header = entry.header().clone();
            if let Some(link) = entry.link_name().map_err(unreadable)? {
                self.writer.append_link(&mut header, inner, link)?;
            } else if matches!(header.entry_type(), tar::EntryType::Regular | tar::EntryType::Directory) {
                header.set_size(entry.size());
                self.writer.append_data(&mut header, inner, &mut entry).map_err(unreadable)?;
            }
            tarball::drain(&mut entry).map_err(unreadable)?;
        }
        Ok(())
    }
}

/// Ends with an error when nobody waits for the archive any more.
struct Watched<'a, R> {
    content: R,
    sender: &'a PieceSender,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.sender.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.content.read(buffer)
    }
}

fn header(kind: tar::EntryType, mode: u32, modified_s: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(modified_s);
    header.set_size(0);
    header
}

/// Sends what is written in pieces.
struct PieceWriter {
    sender: PieceSender,
    piece: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..n]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        if piece.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests;
