//! Makes directories for the host, like `mkdir -p`. Called by `serve`.
//!
//! Directories made before a failure stay; repeating it is harmless.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;

use guest_proto::RefusalKind;

/// Makes each directory and its parents, readable for everybody.
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
