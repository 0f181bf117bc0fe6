//! The tar archive that a copy sends into a sandbox. Contents are read while they are sent.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use dockerfile::Copy;
use tokio::sync::mpsc;

use crate::context::{Context, Entry, EntryKind};
use crate::copy::{Content, Selection};
use crate::error::BuildError;
use crate::format::Format;

const PIECE: usize = 128 * 1024;
/// Pieces on their way.
const PIECES: usize = 4;
const FILE_MODE: u32 = 0o644;

/// Starts to write the archive, and returns its pieces. The last item is an error if it is incomplete.
pub fn send(
    context: Arc<Context>,
    selection: Selection,
    copy: &Copy,
    renamed: Option<String>,
) -> mpsc::Receiver<Result<Bytes, BuildError>> {
    let (sender, pieces) = mpsc::channel(PIECES);
    let mode = copy.mode;
    tokio::task::spawn_blocking(move || {
        let writer = PieceWriter { sender: sender.clone(), piece: Vec::with_capacity(PIECE) };
        let mut archive = Archive { context: &context, mode, writer: tar::Builder::new(writer) };
        let mut written = Ok(());
        for (path, content) in &selection.files {
            written = archive.add(renamed.as_ref().unwrap_or(path), content);
            if written.is_err() {
                break;
            }
        }
        let ended = written.and_then(|()| archive.writer.into_inner()?.flush().map_err(WriteError::Io));
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

enum WriteError {
    Failed(BuildError),
    Io(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

struct Archive<'a> {
    context: &'a Context,
    mode: Option<u32>,
    writer: tar::Builder<PieceWriter>,
}

impl Archive<'_> {
    fn add(&mut self, path: &str, content: &Content) -> Result<(), WriteError> {
        match content {
            Content::Inline(text) => {
                let mut header = header(tar::EntryType::Regular, self.mode.unwrap_or(FILE_MODE), 0);
                header.set_size(text.len() as u64);
                Ok(self.writer.append_data(&mut header, path, text.as_bytes())?)
            }
            Content::Entry(entry) => self.add_entry(path, entry),
            Content::Archive(entry, format) => match entry.kind {
                EntryKind::File { offset, size, .. } => self.extract(path, *format, offset, size),
                _ => self.add_entry(path, entry),
            },
        }
    }

    fn add_entry(&mut self, path: &str, entry: &Entry) -> Result<(), WriteError> {
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
        let failed =
            |reason: String| WriteError::Failed(BuildError::new(format!("cannot unpack '{path}': {reason}")));
        let content = BufReader::with_capacity(PIECE, self.context.open(offset, size)?);
        let reader: Box<dyn Read> = match format {
            Format::Plain => Box::new(content),
            Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(content)),
            Format::Zstd => Box::new(zstd::Decoder::with_buffer(content)?),
            Format::Unsupported(name) => {
                let remedy = "use COPY and unpack it by RUN, or compress it with gzip or zstd";
                return Err(failed(format!("{name} is not supported; {remedy}")));
            }
        };
        let mut archive = tar::Archive::new(reader);
        for entry in archive.entries().map_err(|error| failed(error.to_string()))? {
            let mut entry = entry.map_err(|error| failed(error.to_string()))?;
            let inner = entry.path().map_err(|error| failed(error.to_string()))?.into_owned();
            let mut header = entry.header().clone();
            if let Some(link) = entry.link_name().map_err(|error| failed(error.to_string()))? {
                self.writer.append_link(&mut header, inner, link)?;
            } else if matches!(header.entry_type(), tar::EntryType::Regular | tar::EntryType::Directory) {
                header.set_size(entry.size());
                self.writer.append_data(&mut header, inner, &mut entry)?;
            }
        }
        Ok(())
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
    sender: mpsc::Sender<Result<Bytes, BuildError>>,
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
