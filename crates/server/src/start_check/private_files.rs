//! Files with secrets that others can read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::config::{Config, Tls};

/// A file with a secret that not only its owner can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedFile<'a> {
    /// The configuration key that names it.
    pub key: &'static str,
    pub path: &'a Path,
    pub mode: u32,
}

/// The files that the configuration names, whose groups or others have access. A start refuses such a file of `snapshots.secret_file`.
pub fn exposed_files(config: &Config) -> Vec<ExposedFile<'_>> {
    let key = (config.http.tls == Tls::Files).then_some(("http.tls_key", &*config.http.tls_key));
    let credentials = Some(("images.credentials", &*config.images.credentials));
    let files = [key, credentials].into_iter().flatten();
    files.filter_map(|(key, path)| Some(ExposedFile { key, path, mode: open_mode(path)? })).collect()
}

pub fn warnings(config: &Config, file: Option<&Path>) -> Vec<String> {
    let named = exposed_files(config).into_iter().map(|ExposedFile { key, path, mode }| {
        format!("{key} is '{}', which others can use (mode {mode:o}); run: chmod 600 {0}", path.display())
    });
    let own = file.filter(|_| config.snapshots.has_secret());
    let own = own.and_then(open_mode).map(|mode| {
        format!(
            "snapshots.secret_access_key is in a file that others can use (mode {mode:o}); make its mode 600"
        )
    });
    named.chain(own).collect()
}

/// The permissions of a file, if others than its owner have some.
pub(super) fn open_mode(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o077 != 0).then_some(mode)
}
