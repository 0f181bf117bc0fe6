//! The upload of a build context: spooled to the disk, decompressed and checked before its build is accepted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use base::blocking;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use tokio_util::sync::CancellationToken;

use crate::context::index::{ContextEntry, EntryKind};
use crate::context::spool::{Spool, SpoolFile, StoredContext};
use crate::context::uploads::ContextUpload;
use crate::context::{Context, Hashes};
use crate::error::BuilderError;

const PIECE: usize = 128 * 1024;
/// Digits of base64 that are decoded at a time; a multiple of four.
const DIGITS: usize = 256 * 1024;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An upload in progress. Its file is removed if it is dropped.
pub struct Incoming {
    spool: Arc<Spool>,
    upload: ContextUpload,
    /// The first part creates it.
    file: Option<SpoolFile>,
}

impl Incoming {
    pub(crate) fn new(spool: &Arc<Spool>, account: &str) -> Result<Self, BuilderError> {
        Ok(Self { upload: spool.begin(account)?, spool: Arc::clone(spool), file: None })
    }

    /// Appends a part of the upload.
    pub async fn write(mut self, part: Bytes) -> Result<Self, BuilderError> {
        blocking(move || {
            self.append(&part)?;
            Ok(self)
        })
        .await
    }

    /// Appends the content of a text in base64, which is not in memory any more when this returns: the archive may wait for its turn
    /// to be read, and its index needs memory.
    pub async fn write_base64(mut self, text: Bytes) -> Result<Self, BuilderError> {
        blocking(move || {
            for digits in text.chunks(DIGITS) {
                let part = STANDARD.decode(digits).map_err(|error| {
                    BuilderError::Context(format!("is neither an id 'ctx_…' nor base64: {error}"))
                })?;
                self.append(&part)?;
            }
            Ok(self)
        })
        .await
    }

    fn append(&mut self, part: &[u8]) -> Result<(), BuilderError> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.spool.create()?,
        };
        file.append(part, &mut self.upload)?;
        self.file = Some(file);
        Ok(())
    }

    /// Checks the archive, which may be compressed with gzip.
    pub async fn finish(self) -> Result<StoredContext, BuilderError> {
        let Self { spool, mut upload, file } = self;
        let Some(file) = file.filter(|file| file.bytes() > 0) else {
            return Err(BuilderError::Context("is empty; send a tar archive".to_owned()));
        };
        let (reading, account) = (Arc::clone(&spool), upload.account.clone());
        let read = reading.read(&account, move |stopped| {
            let plain = match is_gzip(&file.path())? {
                true => decompress(&spool, &file.path(), &mut upload, stopped)?,
                false => file,
            };
            plain.store(stopped)
        });
        read.await
    }
}

impl Spool {
    /// A text file of a context.
    pub async fn text(
        &self,
        account: &str,
        stored: &StoredContext,
        path: String,
        most: u64,
    ) -> Result<String, BuilderError> {
        let stored = stored.clone();
        self.read(account, move |stopped| stored.read(Hashes::Skip, stopped)?.text(&path, most)).await
    }

    /// One context of several, each in a directory with its name.
    pub async fn merge(
        self: &Arc<Self>,
        account: &str,
        contexts: BTreeMap<String, StoredContext>,
    ) -> Result<StoredContext, BuilderError> {
        let (spool, mut upload) = (Arc::clone(self), self.begin(account)?);
        let merging = self.read(account, move |stopped| {
            let mut merged = spool.create()?;
            let writer = Appending { file: &mut merged, upload: &mut upload, stopped };
            let mut archive = tar::Builder::new(BufWriter::with_capacity(PIECE, writer));
            for (name, stored) in &contexts {
                let context = stored.read(Hashes::Skip, stopped)?;
                for rank in context.index.below("") {
                    let path = format!("{name}/{}", context.index.path(rank));
                    append(&mut archive, &context, &path, &context.index.entry(rank)).map_err(of_write)?;
                }
            }
            archive.into_inner().and_then(|mut writer| writer.flush()).map_err(of_write)?;
            merged.store(stopped)
        });
        merging.await
    }
}

/// Writes into a file of the spool. Its own errors are inside of those that it returns.
struct Appending<'a> {
    file: &'a mut SpoolFile,
    upload: &'a mut ContextUpload,
    stopped: &'a CancellationToken,
}

impl Write for Appending<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.stopped.is_cancelled() {
            return Err(io::Error::other(BuilderError::Stopping));
        }
        self.file.append(bytes, self.upload).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn of_write(error: io::Error) -> BuilderError {
    error.downcast::<BuilderError>().unwrap_or_else(BuilderError::Io)
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    context: &Context,
    path: &str,
    entry: &ContextEntry<'_>,
) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(entry.mode);
    header.set_mtime(entry.modified_s);
    header.set_size(0);
    match &entry.kind {
        EntryKind::Directory => {
            header.set_entry_type(tar::EntryType::Directory);
            archive.append_data(&mut header, path, io::empty())
        }
        EntryKind::Link { target } => {
            header.set_entry_type(tar::EntryType::Symlink);
            archive.append_link(&mut header, path, target)
        }
        EntryKind::File { offset, size, .. } => {
            header.set_size(*size);
            archive.append_data(&mut header, path, context.open(*offset, *size)?)
        }
    }
}

fn is_gzip(path: &Path) -> io::Result<bool> {
    let mut start = [0; 2];
    match File::open(path)?.read_exact(&mut start) {
        Ok(()) => Ok(start == GZIP),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn decompress(
    spool: &Arc<Spool>,
    path: &Path,
    upload: &mut ContextUpload,
    stopped: &CancellationToken,
) -> Result<SpoolFile, BuilderError> {
    let mut plain = spool.create()?;
    let mut content = MultiGzDecoder::new(BufReader::with_capacity(PIECE, File::open(path)?));
    let mut piece = vec![0; PIECE];
    loop {
        let read = content.read(&mut piece);
        match read.map_err(|error| BuilderError::Context(format!("is not valid gzip: {error}")))? {
            0 => return Ok(plain),
            _ if stopped.is_cancelled() => return Err(BuilderError::Stopping),
            n => plain.append(&piece[..n], upload)?,
        }
    }
}

#[cfg(test)]
mod tests;
