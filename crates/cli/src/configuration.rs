//! Profiles: named URLs and keys, in a file that only its owner can read. `sbx login` writes it atomically.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sandboxd_client::ClientBuilder;
use serde::{Deserialize, Serialize};

/// Name of the default profile.
pub const DEFAULT: &str = "default";

/// The configuration file: profiles by their names.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
}

/// A URL, a key, and what to trust: a fingerprint, a certificate, or the authorities of this machine.
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
    /// Adds what this profile trusts: its fingerprint or its certificates.
    pub fn trust(&self, builder: ClientBuilder) -> Result<ClientBuilder> {
        match (&self.fingerprint, &self.certificate) {
            (Some(text), _) => Ok(builder.pinned(text.parse().context("the profile's fingerprint")?)),
            (None, Some(file)) => Ok(builder.certificate_file(file)),
            (None, None) => Ok(builder),
        }
    }
}

/// The path of the profiles, `$XDG_CONFIG_HOME/sbx/config.toml`; an error if there is none.
pub fn path() -> Result<PathBuf> {
    own_path().context("cannot locate the profiles: neither XDG_CONFIG_HOME nor HOME is set")
}

fn own_path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    Some(dir?.join("sbx/config.toml"))
}

impl Configuration {
    /// The profiles of the current user. A user without a home directory has none.
    pub fn own() -> Result<Self> {
        own_path().map_or_else(|| Ok(Self::default()), |path| Self::load(&path))
    }

    /// Reads a file; empty if it does not exist.
    pub fn load(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            // The home directory of a system user may be `/dev/null`.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!("{0} contains keys but others may read it; run: chmod 600 {0}", path.display());
        }
        toml::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
    }

    /// Replaces the file, which only its user can read.
    pub fn save(&self, path: &Path) -> Result<()> {
        let context = || format!("writing {}", path.display());
        let dir = path.parent().unwrap_or(Path::new("."));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(context)?;
        // `NamedTempFile` creates files with mode 0600.
        let mut draft = tempfile::NamedTempFile::new_in(dir).with_context(context)?;
        draft.write_all(toml::to_string(self)?.as_bytes()).with_context(context)?;
        draft.as_file().sync_all().with_context(context)?;
        draft.persist(path).with_context(context)?;
        Ok(())
    }

    /// The profile with this name. The error of a missing one lists the others.
    pub fn profile(&self, name: &str) -> Result<&Profile> {
        self.profiles.get(name).with_context(|| {
            let names: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("there is no profile '{name}'; existing profiles: {known}; 'sbx login --profile {name}' creates it")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Configuration {
        let profile = Profile {
            url: "https://a.example".into(),
            key: "sk_1".into(),
            fingerprint: Some(format!("sha256:{}", "ab".repeat(32))),
            certificate: None,
        };
        Configuration { profiles: [("work".to_owned(), profile)].into() }
    }

    #[test]
    fn a_saved_file_is_private_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/config.toml");
        assert_eq!(Configuration::load(&path).unwrap(), Configuration::default());
        example().save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Configuration::load(&path).unwrap(), example());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Configuration::load(&path).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn the_error_of_a_missing_profile_lists_the_known_ones() {
        let error = example().profile("home").unwrap_err().to_string();
        assert!(error.contains("'home'") && error.contains("work"), "{error}");
    }
}
