//! Files with secrets that the service makes in its data directory with mode 0600, and that others can read, as after `cp -r`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::private_files::open_mode;

/// The files, and what to do if others have read them.
const FILES: [(&str, &str); 8] = [
    (
        "local.key",
        "revoke the key in it ('sandboxd key list', 'sandboxd key revoke ID'), remove the file, and create another key",
    ),
    (
        "ports.secret",
        "stop the service and remove the file: a start makes another, and all tokens of ports end",
    ),
    (
        "e2b.secret",
        "stop the service and remove the file: a start makes another, and clients of the E2B-compatible API connect again",
    ),
    ("snapshots.secret", "replace the secret on all hosts of the object store (docs/object-store.md)"),
    ("tls/tls-key.pem", "stop the service and remove the directory 'tls': a start makes another certificate"),
    ("store.db", STORED),
    ("store.db-wal", STORED),
    ("store.db-notes", STORED),
];
const STORED: &str = "replace the secrets in environment variables, metadata and commands of sandboxes";

/// A file of the data directory with a secret that not only its owner can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedSecret {
    pub path: PathBuf,
    pub mode: u32,
    /// What to do because others may have read it.
    pub remedy: &'static str,
}

/// The files that others can use.
pub fn exposed(data_dir: &Path) -> Vec<ExposedSecret> {
    let found = FILES.into_iter().filter_map(|(name, remedy)| {
        let path = data_dir.join(name);
        let mode = open_mode(&path)?;
        Some(ExposedSecret { path, mode, remedy })
    });
    found.collect()
}

pub fn warnings(data_dir: &Path) -> Vec<String> {
    let message = |ExposedSecret { path, mode, remedy }| {
        format!(
            "data_dir has '{}', which others can use (mode {mode:o}); a start makes its mode 600. Others may have read it: {remedy}",
            path.display()
        )
    };
    exposed(data_dir).into_iter().map(message).collect()
}

/// Takes the files from others, for a start. Logs what to do about each.
pub fn close(data_dir: &Path) {
    for ExposedSecret { path, mode, remedy } in exposed(data_dir) {
        let file = path.display();
        let mode = format!("{mode:o}");
        match fs::set_permissions(&path, fs::Permissions::from_mode(0o600)) {
            Ok(()) => {
                tracing::warn!(%file, mode, "others could read a file with secrets, whose mode is 600 now: {remedy}");
            }
            // The check of the start reports the file.
            Err(error) => {
                tracing::warn!(%file, mode, %error, "cannot change the mode of a file with secrets");
            }
        }
    }
}
