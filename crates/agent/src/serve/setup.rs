//! Creates directories for the host, like `mkdir -p`. Called by `serve`.
//!
//! Directories created before a failure stay; the request can be repeated.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;

use guest_proto::RefusalKind;

/// Creates each directory and its parents, readable for all users.
pub fn make_dirs(dirs: &[&str]) -> Result<(), (RefusalKind, String)> {
    for dir in dirs {
        DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(|error| {
            let kind = match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => RefusalKind::NotAllowed,
                _ => RefusalKind::Failed,
            };
            (kind, format!("cannot create the directory {dir}: {error}"))
        })?;
    }
    Ok(())
}
