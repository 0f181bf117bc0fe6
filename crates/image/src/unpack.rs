//! Unpacks a tar into a directory in the form that overlayfs expects of lower layers. Called on blocking threads by
//! all code that creates a layer.
//!
//! The archive is untrusted. It cannot write outside the directory: the kernel resolves each parent with the
//! directory as its root (`openat2`, `RESOLVE_IN_ROOT`), and does not follow the last component. Devices and the
//! attributes that overlayfs trusts are refused or dropped. Bytes and entries count against a [`Budget`], and memory
//! is bounded. After a failure the caller removes the partial directory.

mod entry;
mod name;
mod stream;
mod tree;

#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::error::FailureKind;
use crate::fault::Fault;
use crate::limits::Budget;

use entry::Unpacker;
use tarball::{Exceeded, Unsupported};

pub(crate) use stream::{hex, sha256_hex};

/// The meaning of names that begin with `.wh.`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whiteouts {
    /// Whiteouts: removals of files in lower layers (OCI layers).
    Honour,
    /// Refused: the archive is a whole root.
    Refuse,
}

/// How to unpack.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) whiteouts: Whiteouts,
    pub(crate) budget: Arc<Budget>,
    /// Set to cancel.
    pub(crate) cancelled: Arc<AtomicBool>,
}

/// The digests of a whole archive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// SHA-256 of the tar, in hexadecimal.
    pub(crate) diff_id: String,
    /// SHA-256 of the bytes as received, compressed or not.
    pub(crate) blob_id: String,
}

/// Unpacks a tar, packed with gzip, zstd or not at all, into the empty directory `into`.
pub(crate) fn unpack(input: impl Read, into: &Path, rules: &Rules) -> Result<Unpacked, Fault> {
    let (tar, bounds) = stream::open(input, rules)?;
    let mut archive = tar::Archive::new(tar);
    let mut unpacker = Unpacker::new(into, rules)?;
    {
        let mut entries = archive.entries().map_err(unreadable)?;
        while let Some(mut entry) = bounds.next(&mut entries).map_err(unreadable)? {
            if rules.cancelled.load(Relaxed) {
                return Err(Fault::new(FailureKind::Io, "unpacking was cancelled"));
            }
            unpacker.add(&mut entry)?;
            tarball::drain(&mut entry).map_err(unreadable)?;
        }
    }
    unpacker.finish()?;
    stream::finish(archive.into_inner())
}

/// Converts an error of the archive's reader: an exceeded limit, or a malformed archive.
fn unreadable(e: std::io::Error) -> Fault {
    if let Some(exceeded) = Exceeded::of(&e) {
        return Fault::too_big(exceeded.to_string());
    }
    match e.downcast::<Unsupported>() {
        Ok(unsupported) => Fault::refused(unsupported.to_string()),
        Err(e) => Fault::refused("the archive cannot be read").caused_by(e),
    }
}
