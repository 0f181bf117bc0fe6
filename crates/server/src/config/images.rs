//! `[images]`: sources of images by name, and which images of registries accounts may name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rules::{AllowedVersions, ImagePattern, ImagePolicy};
use serde::{Deserialize, Serialize};

use super::bounds::within;

/// Every image of every registry.
const EVERYTHING: &str = "**";
const MOST_BYTES: u64 = 1 << 50;

/// Sources of images, tried in order. An entry with the name of a default image replaces its sources.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageSources {
    /// Patterns of images that all accounts may name.
    pub allow: Vec<String>,
    /// A create may name any image of any registry with a public address.
    pub allow_any: bool,
    /// For single accounts, by name.
    pub accounts: BTreeMap<String, AccountImages>,
    /// Docker's `config.json`. Empty: that of the user of the daemon.
    pub credentials: PathBuf,
    /// Of all images; 0 is unlimited.
    pub max_bytes: u64,
    /// Registries that a create may name although they have no public address.
    pub private_registries: Vec<String>,
    /// Of one account; 0 is unlimited.
    pub pull_bytes_per_day: u64,
    /// Images that accounts name must have a digest.
    pub require_digest: bool,
    #[serde(flatten)]
    pub named: BTreeMap<String, Vec<String>>,
}

/// The images that one account may name in addition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountImages {
    pub allow: Vec<String>,
}

impl Default for ImageSources {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            allow_any: false,
            accounts: BTreeMap::new(),
            credentials: PathBuf::new(),
            max_bytes: 0,
            private_registries: Vec::new(),
            pull_bytes_per_day: 100 << 30,
            require_digest: false,
            named: BTreeMap::new(),
        }
    }
}

impl ImageSources {
    pub(super) fn check(&self) -> Result<()> {
        self.policy()?;
        within("images.max_bytes", self.max_bytes, 0, MOST_BYTES)?;
        within("images.pull_bytes_per_day", self.pull_bytes_per_day, 0, MOST_BYTES)?;
        for host in &self.private_registries {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
            ensure!(
                !host.is_empty() && host.chars().all(is_plain),
                "images.private_registries has '{host}'; it must be the host of a registry such as registry.internal:5000, as it is \
                 written in references of images"
            );
        }
        Ok(())
    }

    /// Which images of registries accounts may name.
    pub fn policy(&self) -> Result<ImagePolicy> {
        let mut allow = patterns("images.allow", &self.allow)?;
        if self.allow_any {
            allow.extend(ImagePattern::parse(EVERYTHING));
        }
        let mut accounts = BTreeMap::new();
        for (name, own) in &self.accounts {
            accounts
                .insert(name.clone(), patterns(&format!("images.accounts.\"{name}\".allow"), &own.allow)?);
        }
        let versions = match self.require_digest {
            true => AllowedVersions::Digests,
            false => AllowedVersions::TagsAndDigests,
        };
        Ok(ImagePolicy { allow, accounts, versions })
    }

    /// Allows one more image for an account.
    pub fn allow_for(&mut self, account: &str, pattern: &ImagePattern) {
        self.accounts.entry(account.to_owned()).or_default().allow.push(pattern.to_string());
    }
}

fn patterns(key: &str, texts: &[String]) -> Result<Vec<ImagePattern>> {
    texts.iter().map(|text| ImagePattern::parse(text).with_context(|| format!("in {key}"))).collect()
}

#[cfg(test)]
mod tests {
    use rules::{ImageReference, ImageRefusal};

    use super::*;
    use crate::cli::ServeArguments;
    use crate::config::Config;

    fn read(text: &str) -> ImageSources {
        toml::from_str(text).unwrap()
    }

    fn check(images: &ImageSources, account: &str, image: &str) -> Result<(), ImageRefusal> {
        images.policy().unwrap().check(account, &ImageReference::parse(image).unwrap(), &[])
    }

    #[test]
    fn patterns_are_for_all_accounts_or_for_one() {
        let images = read(
            "allow = [\"docker.io/library/*\"]\nmax_bytes = 5\n\"mine\" = [\"rootfs:/x\"]\n\
             [accounts.\"acme\"]\nallow = [\"ghcr.io/acme/*\"]",
        );
        images.check().unwrap();
        assert_eq!(check(&images, "one", "python"), Ok(()));
        assert_eq!(check(&images, "one", "ghcr.io/acme/app"), Err(ImageRefusal::NotAllowed));
        assert_eq!(check(&images, "acme", "ghcr.io/acme/app"), Ok(()));
        assert_eq!(images.named.keys().collect::<Vec<_>>(), ["mine"]);
        assert_eq!(images.max_bytes, 5);
        assert_eq!(check(&read(""), "one", "python"), Err(ImageRefusal::NotAllowed));
        assert_eq!(check(&read("allow_any = true"), "one", "quay.io/a/b"), Ok(()));
        let pinned = read("allow = [\"**\"]\nrequire_digest = true");
        assert_eq!(check(&pinned, "one", "python"), Err(ImageRefusal::NeedsDigest));
    }

    #[test]
    fn a_bad_pattern_names_its_key() {
        for (text, key) in [
            ("allow = [\"https://ghcr.io/*\"]", "in images.allow"),
            ("[accounts.\"acme\"]\nallow = [\"*/x\"]", "in images.accounts.\"acme\".allow"),
        ] {
            let error = format!("{:#}", read(text).check().unwrap_err());
            assert!(error.contains(key) && error.contains("docker.io/library/*"), "{error}");
        }
    }

    #[test]
    fn a_flag_allows_images_for_the_local_account() {
        let allow_images = vec![ImagePattern::parse("docker.io/library/*").unwrap()];
        let flags = ServeArguments { allow_images, ..ServeArguments::default() };
        let images = Config::default().with_flags(&flags).unwrap().images;
        assert_eq!(check(&images, "default", "python"), Ok(()));
        assert_eq!(check(&images, "default", "acme/python"), Err(ImageRefusal::NotAllowed));
        assert_eq!(check(&images, "other", "python"), Err(ImageRefusal::NotAllowed));
    }
}
