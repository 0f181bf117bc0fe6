//! Which images of registries an account may name. Those of the catalogue are for all accounts.

use std::collections::BTreeMap;

use crate::images::pattern::ImagePattern;
use crate::images::reference::{ImageReference, ImageVersion};

/// The operator's choices in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImagePolicy {
    /// For all accounts.
    pub allow: Vec<ImagePattern>,
    /// In addition, for single accounts.
    pub accounts: BTreeMap<String, Vec<ImagePattern>>,
    /// Which references are accepted.
    pub versions: AllowedVersions,
}

/// Which references of allowed images are accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AllowedVersions {
    #[default]
    TagsAndDigests,
    /// A digest names one image for ever.
    Digests,
}

/// A pattern that was added to the configuration while the service runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedPattern {
    pub pattern: ImagePattern,
    /// `None`: for all accounts.
    pub account: Option<String>,
}

/// Why an account may not name an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageRefusal {
    NotAllowed,
    /// The image is allowed, but only by its digest.
    NeedsDigest,
}

impl ImagePolicy {
    /// All patterns, those for all accounts first.
    #[must_use]
    pub fn patterns(&self) -> Vec<AddedPattern> {
        let of = |account: Option<&String>, pattern: &ImagePattern| AddedPattern {
            pattern: pattern.clone(),
            account: account.cloned(),
        };
        let mut patterns: Vec<_> = self.allow.iter().map(|pattern| of(None, pattern)).collect();
        for (account, own) in &self.accounts {
            patterns.extend(own.iter().map(|pattern| of(Some(account), pattern)));
        }
        patterns
    }

    /// Whether the account may name the image.
    pub fn check(
        &self,
        account: &str,
        reference: &ImageReference,
        added: &[AddedPattern],
    ) -> Result<(), ImageRefusal> {
        let own = self.accounts.get(account).into_iter().flatten();
        let is_for_account = |added: &&AddedPattern| added.account.as_deref().is_none_or(|of| of == account);
        let added = added.iter().filter(is_for_account).map(|added| &added.pattern);
        let is_allowed = self.allow.iter().chain(own).chain(added).any(|pattern| pattern.matches(reference));
        match (is_allowed, self.versions, reference.version()) {
            (false, ..) => Err(ImageRefusal::NotAllowed),
            (true, AllowedVersions::Digests, ImageVersion::Tag(_)) => Err(ImageRefusal::NeedsDigest),
            (true, ..) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ImagePattern {
        ImagePattern::parse(text).unwrap()
    }

    fn check(
        policy: &ImagePolicy,
        account: &str,
        image: &str,
        added: &[AddedPattern],
    ) -> Result<(), ImageRefusal> {
        policy.check(account, &ImageReference::parse(image).unwrap(), added)
    }

    #[test]
    fn by_default_no_image_of_a_registry_is_allowed() {
        let refused = check(&ImagePolicy::default(), "one", "python:3.12", &[]);
        assert_eq!(refused, Err(ImageRefusal::NotAllowed));
    }

    #[test]
    fn patterns_are_for_all_accounts_or_for_one() {
        let policy = ImagePolicy {
            allow: vec![pattern("docker.io/library/*")],
            accounts: [("acme".to_owned(), vec![pattern("ghcr.io/acme/*")])].into(),
            ..ImagePolicy::default()
        };
        for (account, image, expected) in [
            ("one", "python", Ok(())),
            ("one", "ghcr.io/acme/app", Err(ImageRefusal::NotAllowed)),
            ("acme", "ghcr.io/acme/app", Ok(())),
            ("acme", "python", Ok(())),
            ("acme", "quay.io/acme/app", Err(ImageRefusal::NotAllowed)),
        ] {
            assert_eq!(check(&policy, account, image, &[]), expected, "{account} {image}");
        }
    }

    #[test]
    fn patterns_can_be_added_while_the_service_runs() {
        let policy = ImagePolicy::default();
        let added = [
            AddedPattern { pattern: pattern("quay.io/**"), account: None },
            AddedPattern { pattern: pattern("ghcr.io/**"), account: Some("acme".to_owned()) },
        ];
        assert_eq!(check(&policy, "one", "quay.io/a/b", &added), Ok(()));
        assert_eq!(check(&policy, "acme", "ghcr.io/a/b", &added), Ok(()));
        assert_eq!(check(&policy, "one", "ghcr.io/a/b", &added), Err(ImageRefusal::NotAllowed));
    }

    #[test]
    fn a_tag_is_refused_if_digests_are_required() {
        let policy = ImagePolicy {
            allow: vec![pattern("docker.io/library/*")],
            versions: AllowedVersions::Digests,
            ..ImagePolicy::default()
        };
        let pinned = format!("python@sha256:{}", "a".repeat(64));
        assert_eq!(check(&policy, "one", "python:3.12", &[]), Err(ImageRefusal::NeedsDigest));
        assert_eq!(check(&policy, "one", &pinned, &[]), Ok(()));
        // The digest does not help then.
        assert_eq!(check(&policy, "one", "quay.io/a/b", &[]), Err(ImageRefusal::NotAllowed));
    }
}
