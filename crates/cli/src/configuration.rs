//! Profiles: services and keys under names, in a file that only its owner can read. Written by `sbx login`, whole or not at all.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sandboxd_client::{ClientBuilder, Fingerprint};
use serde::{Deserialize, Serialize};

/// Where nothing else is named.
pub const DEFAULT: &str = "default";

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
}

/// A service, a key, and what to trust: one of fingerprint and certificate, or this machine's authorities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub url: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
}

impl Profile {
    pub fn trust(&self, builder: ClientBuilder) -> Result<ClientBuilder> {
        match (&self.fingerprint, &self.certificate) {
            (Some(text), _) => {
                let fingerprint: Fingerprint = text.parse().context("the profile's fingerprint")?;
                Ok(builder.pinned(fingerprint))
            }
            (None, Some(file)) => Ok(builder.certificate_file(file)),
            (None, None) => Ok(builder),
        }
    }
}

/// `$XDG_CONFIG_HOME/sbx/config.toml`, for who needs a profile.
pub fn path() -> Result<PathBuf> {
    place().context("neither XDG_CONFIG_HOME nor HOME is set, and profiles are kept below one of them")
}

fn place() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    Some(dir?.join("sbx/config.toml"))
}

impl Configuration {
    /// What is kept for whoever calls this program. A service's own user may have no home, and so has no profiles.
    pub fn own() -> Result<Self> {
        place().map_or_else(|| Ok(Self::default()), |path| Self::load(&path))
    }

    /// Empty where there is no file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            // The home of who is to have none may be `/dev/null`.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!("{0} holds keys and others may read it; mend that: chmod 600 {0}", path.display());
        }
        toml::from_str(&text).with_context(|| format!("{} is not understood", path.display()))
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        let what = || format!("writing {}", path.display());
        let dir = path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(what)?;
        // Made with mode 0600.
        let mut draft = tempfile::NamedTempFile::new_in(dir).with_context(what)?;
        draft.write_all(toml::to_string(self)?.as_bytes()).with_context(what)?;
        draft.as_file().sync_all().with_context(what)?;
        draft.persist(path).with_context(what)?;
        Ok(())
    }

    pub fn profile(&self, name: &str) -> Result<&Profile> {
        self.profiles.get(name).with_context(|| {
            let names: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("there is no profile {name:?}; known: {known}; 'sbx login --profile {name}' makes it")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Configuration {
        let profile = Profile {
            url: "https://a.example".into(),
            key: "sk_1".into(),
            fingerprint: Some(format!("sha256:{}", "ab".repeat(32))),
            certificate: None,
        };
        Configuration { profiles: [("work".to_owned(), profile)].into() }
    }

    #[test]
    fn what_is_saved_is_for_its_owner_alone_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/config.toml");
        assert_eq!(Configuration::load(&path).unwrap(), Configuration::default());
        one().save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Configuration::load(&path).unwrap(), one());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Configuration::load(&path).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn a_missing_profile_is_told_the_known_ones() {
        let error = one().profile("home").unwrap_err().to_string();
        assert!(error.contains("\"home\"") && error.contains("work"), "{error}");
    }
}
