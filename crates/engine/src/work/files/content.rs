//! The content that a file operation sends, with the length that it announced.

use std::io;

use bytes::Bytes;

use crate::work::files::FileOperation;

/// The content of an operation. With a length it has exactly that many bytes, whatever the sandbox sends: other content is an error.
pub struct FileContent {
    operation: FileOperation,
    /// Bytes of the announced length that have not arrived yet.
    left: Option<u64>,
}

impl FileContent {
    pub fn new(operation: FileOperation, length: Option<u64>) -> Self {
        Self { operation, left: length }
    }

    /// Waits for the next bytes; `None` at their end.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let bytes = self.operation.bytes().await.map_err(io::Error::other)?;
        let Some(left) = self.left else { return Ok(bytes) };
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match left.checked_sub(length) {
            Some(rest) if length > 0 || rest == 0 => self.left = Some(rest),
            _ => {
                return Err(io::Error::other(
                    "the sandbox sent another number of bytes than it had promised",
                ));
            }
        }
        Ok(bytes)
    }
}
