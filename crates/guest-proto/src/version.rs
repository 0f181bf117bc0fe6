//! Versions of the protocol, and how the two sides agree on one. Used at `Hello` by the agent and at `Welcome` by the host.

use crate::ProtoError;

/// Since this version there are errands among files.
pub const FILES_SINCE: u16 = 2;
/// Since this version there are commands that outlive their link, and terminals.
pub const KEPT_SINCE: u16 = 2;
/// The newest version this code speaks.
pub const VERSION: u16 = 2;
/// The oldest version this code speaks.
pub const MIN_VERSION: u16 = 1;

/// The version to speak with a side that knows `their_min` to `theirs`: the newest that both know.
///
/// # Errors
/// [`ProtoError::Version`] if there is none.
pub fn negotiate(theirs: u16, their_min: u16) -> Result<u16, ProtoError> {
    let version = theirs.min(VERSION);
    if version < their_min || version < MIN_VERSION {
        return Err(ProtoError::Version { theirs, their_min, ours: VERSION, ours_min: MIN_VERSION });
    }
    Ok(version)
}
