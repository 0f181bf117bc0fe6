//! Versions of the protocol, and how the two sides agree on one. Used at `Hello` by the agent and at `Welcome` by the host.

use crate::ProtoError;

/// First version with file operations.
pub const FILES_SINCE: u16 = 2;
/// First version with detached commands and terminals.
pub const DETACHED_SINCE: u16 = 2;
/// First version with commands and file operations on behalf of a user, and with watches.
pub const USERS_SINCE: u16 = 3;
/// First version with [`crate::FileRequest::Sync`].
pub const SYNC_SINCE: u16 = 4;
/// First version with links that continue on another stream, and with [`crate::ToGuest::Adopt`].
pub const SUSPEND_SINCE: u16 = 5;
/// The newest supported version.
pub const VERSION: u16 = 5;
/// The oldest supported version.
pub const MIN_VERSION: u16 = 1;

/// The newest version that both sides support; the other one supports `their_min` to `theirs`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_taken() {
        for (theirs, their_min, agreed) in [
            (VERSION, MIN_VERSION, Some(VERSION)),
            (u16::MAX, MIN_VERSION, Some(VERSION)),
            (3, 1, Some(3)),
            (MIN_VERSION, MIN_VERSION, Some(MIN_VERSION)),
            (u16::MAX, VERSION, Some(VERSION)),
            (u16::MAX, VERSION + 1, None),
            (0, 0, None),
            // No range at all.
            (2, 3, None),
        ] {
            assert_eq!(negotiate(theirs, their_min).ok(), agreed, "{theirs} down to {their_min}");
        }
        let error = negotiate(9, 7).unwrap_err().to_string();
        assert_eq!(error, "the peer supports protocol versions 7 to 9, this side 1 to 5");
    }

    #[test]
    fn each_feature_is_in_the_newest_version() {
        let since = [FILES_SINCE, DETACHED_SINCE, USERS_SINCE, SYNC_SINCE, SUSPEND_SINCE];
        assert!(since.is_sorted() && since.iter().all(|since| (MIN_VERSION..=VERSION).contains(since)));
    }
}
