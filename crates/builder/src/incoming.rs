//! The upload of a build context: spooled to the disk, decompressed and indexed before its build is accepted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};

use crate::context::{Context, Entry, EntryKind};
use crate::error::BuilderError;

const PIECE: usize = 128 * 1024;
pub const PREFIX: &str = "incoming-";
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An upload in progress. Its file is removed if it is dropped.
#[derive(Debug)]
pub struct Incoming {
    file: NamedTempFile,
    bytes: u64,
    most: u64,
}

/// A complete context.
#[derive(Debug, Clone)]
pub struct StoredContext {
    /// Removed with the last clone, unless the template takes it.
    pub(crate) file: Arc<TempPath>,
    pub(crate) context: Arc<Context>,
    /// Without compression.
    pub size_bytes: u64,
}

fn too_large(most: u64) -> BuilderError {
    BuilderError::Context(format!("is larger than {} MB, the limit of this service", most >> 20))
}

impl Incoming {
    pub(crate) fn new(dir: &Path, most: u64) -> io::Result<Self> {
        let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(dir)?;
        Ok(Self { file, bytes: 0, most })
    }

    /// Appends a part of the upload.
    pub async fn write(mut self, part: Bytes) -> Result<Self, BuilderError> {
        self.bytes += part.len() as u64;
        if self.bytes > self.most {
            return Err(too_large(self.most));
        }
        blocking(move || {
            self.file.write_all(&part)?;
            Ok(self)
        })
        .await
    }

    /// Checks the archive, which may be compressed with gzip.
    pub async fn finish(self) -> Result<StoredContext, BuilderError> {
        blocking(move || {
            let Self { mut file, bytes, most } = self;
            if bytes == 0 {
                return Err(BuilderError::Context("is empty; send a tar archive".to_owned()));
            }
            file.flush()?;
            let file = if is_gzip(file.path())? { decompress(&file, most)? } else { file };
            file.as_file().sync_all()?;
            let context = Context::read(file.path().to_owned())?;
            let size_bytes = file.as_file().metadata()?.len();
            Ok(StoredContext {
                file: Arc::new(file.into_temp_path()),
                context: Arc::new(context),
                size_bytes,
            })
        })
        .await
    }
}

impl StoredContext {
    /// A text file of the context.
    pub async fn text(&self, path: String, most: u64) -> Result<String, BuilderError> {
        let context = Arc::clone(&self.context);
        blocking(move || context.text(&path, most)).await
    }

    /// Gives the file to a template. Blocks.
    pub(crate) fn move_to(&self, path: &PathBuf) -> io::Result<Context> {
        std::fs::hard_link(&*self.file, path)?;
        // The index is the same; the old name is removed with the last clone.
        Ok(self.context.at(path.clone()))
    }
}

/// One context of several, each in a directory with its name.
pub async fn merge(
    dir: PathBuf,
    most: u64,
    contexts: BTreeMap<String, StoredContext>,
) -> Result<StoredContext, BuilderError> {
    blocking(move || {
        let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(dir)?;
        let mut archive = tar::Builder::new(BufWriter::with_capacity(PIECE, file.as_file()));
        for (name, stored) in &contexts {
            for (path, entry) in stored.context.below("") {
                append(&mut archive, &stored.context, &format!("{name}/{path}"), entry)?;
            }
        }
        archive.into_inner()?.flush()?;
        let size_bytes = file.as_file().metadata()?.len();
        if size_bytes > most {
            return Err(too_large(most));
        }
        file.as_file().sync_all()?;
        let context = Context::read(file.path().to_owned())?;
        Ok(StoredContext { file: Arc::new(file.into_temp_path()), context: Arc::new(context), size_bytes })
    })
    .await
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    context: &Context,
    path: &str,
    entry: &Entry,
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

/// Runs work that waits for the disk.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BuilderError> + Send + 'static,
) -> Result<T, BuilderError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| BuilderError::Stopping)?
}

fn is_gzip(path: &Path) -> io::Result<bool> {
    let mut start = [0; 2];
    match File::open(path)?.read_exact(&mut start) {
        Ok(()) => Ok(start == GZIP),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn decompress(file: &NamedTempFile, most: u64) -> Result<NamedTempFile, BuilderError> {
    let dir = file.path().parent().unwrap_or(Path::new("/"));
    let mut plain = tempfile::Builder::new().prefix(PREFIX).tempfile_in(dir)?;
    let compressed = BufReader::with_capacity(PIECE, File::open(file.path())?);
    let mut content = flate2::bufread::MultiGzDecoder::new(compressed).take(most + 1);
    let copied = io::copy(&mut content, &mut plain)
        .map_err(|error| BuilderError::Context(format!("is not valid gzip: {error}")))?;
    if copied > most {
        return Err(too_large(most));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests;
