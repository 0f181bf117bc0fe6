//! `[images]`: sources of images by name, and which images of registries accounts may name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rules::{AllowedVersions, ImagePattern, ImagePolicy};

use super::declare::table;
use super::problems::Problems;

/// Every image of every registry.
const EVERYTHING: &str = "**";
const MOST_BYTES: u64 = 1 << 50;

table! {
    /// Sources of images by name; see [images.md](images.md). An entry with the name of a default image replaces its sources.
    pub struct ImageSources {
        /// Images of registries that creates may name besides those of the catalogue, such as `docker.io/library/*` or
        /// `ghcr.io/acme/**`. `*` stands for any text without a slash, `**` for any text. Without a tag a pattern matches all
        /// tags and digests. The registry, its token server and its storage must have public addresses and TLS, and are reached
        /// without a proxy. `sandboxd image allow` adds patterns without a restart.
        allow: Vec<String>, "list of patterns";
        /// Allows all images of all registries, as `**` in `allow` does.
        allow_any: bool = false, "true or false";
        /// Patterns for single accounts, in addition to those for all, as `[images.accounts."NAME"]` with `allow`.
        accounts: BTreeMap<String, AccountImages>, "tables";
        /// File with logins of registries, in the form of Docker's `config.json`. Only its owner should be able to read it
        /// (mode 600). They are used for all images that an account may name. `""`: `config.json` in `DOCKER_CONFIG`, or in
        /// `.docker` of the user of the service.
        credentials: PathBuf, "path";
        /// Disk space of all images. Above it the least recently used images that creates have named are removed, except those
        /// that a sandbox, a snapshot or a template uses. If that is not enough, such pulls get 503. `0`: unlimited.
        max_bytes: u64 = 0, "bytes" in 0..=MOST_BYTES;
        /// Registries that creates may name, if their images are allowed, although they are on this host or in a private
        /// network. Their answers can lead the service to any address.
        private_registries: Vec<String>, "list of `HOST` or `HOST:PORT`";
        /// What the creates and builds of an account can pull in a day (UTC), not counting images of the catalogue. Beyond it
        /// they get 429. `0`: unlimited.
        pull_bytes_per_day: u64 = 100 << 30, "bytes" in 0..=MOST_BYTES;
        /// Images outside the catalogue must be named by their digest: `docker.io/library/python@sha256:…`.
        require_digest: bool = false, "true or false";
        ..named: Vec<String>, "list of sources", each "Sources of the image, tried in order.";
    }
}

table! {
    /// The images that one account may name in addition.
    pub struct AccountImages {
        allow: Vec<String>;
    }
}

impl ImageSources {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let patterns = |key: &str, texts: &[String]| {
            texts.iter().map(|text| pattern(key, text).map(drop)).collect::<Vec<_>>()
        };
        let mut checks = patterns("images.allow", &self.allow);
        for (name, own) in &self.accounts {
            checks.extend(patterns(&format!("images.accounts.\"{name}\".allow"), &own.allow));
        }
        checks.extend(self.private_registries.iter().map(|host| check_registry(host)));
        Problems::of(checks)
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
    texts.iter().map(|text| pattern(key, text)).collect()
}

fn pattern(key: &str, text: &str) -> Result<ImagePattern> {
    ImagePattern::parse(text).with_context(|| format!("in {key}"))
}

fn check_registry(host: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    ensure!(
        !host.is_empty() && host.chars().all(is_plain),
        "images.private_registries has '{host}'; it must be the host of a registry such as registry.internal:5000, as it is written in \
         references of images"
    );
    Ok(())
}

/// Checks a key that takes the name of an image.
pub(super) fn check_name(key: &str, image: &str) -> Result<()> {
    ensure!(!image.is_empty(), "{key} is empty; it must be the name of an image");
    Ok(())
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
