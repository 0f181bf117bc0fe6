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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: Option<&str>) -> Result<Option<LocalService>> {
        let dir = tempfile::tempdir().unwrap();
        if let Some(content) = content {
            std::fs::write(dir.path().join(FILE), content).unwrap();
        }
        LocalService::read(dir.path())
    }

    #[test]
    fn a_daemon_with_and_without_tls_is_found() {
        assert_eq!(read(None).unwrap(), None);
        let plain =
            read(Some(r#"{"url":"http://127.0.0.1:1","fingerprint":null,"later":1}"#)).unwrap().unwrap();
        assert_eq!((plain.url.as_str(), plain.fingerprint), ("http://127.0.0.1:1", None));
        let print = format!("sha256:{}", "0f".repeat(32));
        let tls = read(Some(&format!(r#"{{"url":"https://a","fingerprint":"{print}"}}"#))).unwrap().unwrap();
        assert_eq!(tls.fingerprint.map(|print| print.to_string()), Some(print));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_a_daemon_without_a_certificate() {
        for content in ["", "{}", r#"{"url":1}"#, r#"{"url":"https://a","fingerprint":"0f"}"#] {
            let error = read(Some(content)).unwrap_err();
            assert_eq!(error.code(), crate::Code::Configuration, "{content}");
            assert!(error.message().contains("local.json is malformed"), "{error}");
        }
    }
}
