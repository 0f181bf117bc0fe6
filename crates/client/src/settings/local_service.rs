//! The file `local.json` in the data directory of a daemon of this host: its URL, and the fingerprint of its certificate. The daemon
//! writes it when it starts. The settings use it if no URL is given. A file that cannot be read counts as none: other users of the
//! host may not read it, and daemons of earlier versions do not write it.

use std::path::Path;

use serde::Deserialize;

use crate::{Error, Fingerprint, Result};

const FILE: &str = "local.json";

/// How to reach the daemon of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalService {
    pub url: String,
    /// The only certificate to trust, whatever its names are. `None` without TLS.
    pub fingerprint: Option<Fingerprint>,
}

/// The file as the daemon writes it. Fields of later versions are ignored.
#[derive(Deserialize)]
struct LocalServiceFile {
    url: String,
    fingerprint: Option<String>,
}

impl LocalService {
    /// Reads the file.
    pub fn read(data_dir: &Path) -> Result<Option<Self>> {
        let file = data_dir.join(FILE);
        let Ok(text) = std::fs::read(&file) else { return Ok(None) };
        let malformed = || {
            let file = file.display();
            Error::configuration(format!("{file} is malformed; a restart of the daemon writes it again"))
        };
        let content: LocalServiceFile =
            serde_json::from_slice(&text).map_err(|error| malformed().caused_by(error))?;
        let fingerprint = match content.fingerprint {
            Some(text) => Some(text.parse::<Fingerprint>().map_err(|error| malformed().caused_by(error))?),
            None => None,
        };
        Ok(Some(Self { url: content.url, fingerprint }))
    }
}
