//! Making directories for the host: what `mkdir -p` does. Called by `serve`.
//!
//! What was made before a failure stays; doing it again is harmless.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;

use guest_proto::RefusalKind;

/// Makes each directory and those above it, for everybody to read.
pub fn make_dirs(dirs: &[&str]) -> Result<(), (RefusalKind, String)> {
    for dir in dirs {
        DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(|error| {
            let kind = match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => RefusalKind::NotAllowed,
                _ => RefusalKind::Failed,
            };
            (kind, format!("cannot make the directory {dir}: {error}"))
        })?;
    }
    Ok(())
}
