//! References of images of registries, normalised as Docker does: `python:3.12` is `docker.io/library/python:3.12`.

use std::fmt;

const HUB: &str = "docker.io";
/// A former name of [`HUB`], which references still have.
const HUB_ALIAS: &str = "index.docker.io";
/// The repositories of images without an owner.
const LIBRARY: &str = "library";
const DEFAULT_TAG: &str = "latest";
const LOCALHOST: &str = "localhost";
/// Of the normalised form, which is the name of the image on this host.
const REFERENCE_BYTES: usize = 255;
/// Of a text that may be one.
const TEXT_BYTES: usize = 512;
const REPOSITORY_BYTES: usize = 255;
const TAG_BYTES: usize = 128;
const PORT_DIGITS: usize = 5;
const DIGEST_DIGITS: usize = 64;

/// An image of a registry. References of the same image are equal, however they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    registry: String,
    repository: String,
    version: ImageVersion,
}

/// Which of the images of a repository. A reference with a tag and a digest means the digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageVersion {
    Tag(String),
    /// `sha256:` and 64 hexadecimal digits.
    Digest(String),
}

impl ImageReference {
    /// `None` if the text is no reference that Docker accepts.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES {
            return None;
        }
        let (rest, digest) = split_digest(text);
        let (name, tag) = split_tag(rest);
        let (registry, repository) = split_registry(name);
        let is_path = |path: &str| path.len() <= REPOSITORY_BYTES && path.split('/').all(is_component);
        let is_good = is_registry(&registry)
            && is_path(&repository)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        let version = match (digest, tag) {
            (Some(digest), _) => ImageVersion::Digest(digest.to_owned()),
            (None, tag) => ImageVersion::Tag(tag.unwrap_or(DEFAULT_TAG).to_owned()),
        };
        let reference = Self { registry, repository, version };
        (is_good && reference.to_string().len() <= REFERENCE_BYTES).then_some(reference)
    }

    /// The host of the registry, with a port if it has one.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Registry and repository, without tag and digest.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The tag or the digest; a reference without one has the tag `latest`.
    #[must_use]
    pub fn version(&self) -> &ImageVersion {
        &self.version
    }
}

impl fmt::Display for ImageReference {
    /// The complete form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.version {
            ImageVersion::Tag(tag) => write!(f, ":{tag}"),
            ImageVersion::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

/// Whether two texts name the same image: they are equal, or references of one image.
#[must_use]
pub fn is_same_image(one: &str, other: &str) -> bool {
    let of = ImageReference::parse;
    one == other || of(one).is_some_and(|one| of(other).is_some_and(|other| one == other))
}

/// What is before and after the `@` of a reference or a pattern.
pub(crate) fn split_digest(text: &str) -> (&str, Option<&str>) {
    match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    }
}

/// The name and the tag. A colon before a slash belongs to a port.
pub(crate) fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    }
}

/// The registry and the repository, with Docker's defaults.
pub(crate) fn split_registry(name: &str) -> (String, String) {
    let (registry, repository) = match name.split_once('/') {
        Some((host, path)) if names_registry(host) => (host.to_ascii_lowercase(), path),
        _ => (HUB.to_owned(), name),
    };
    let registry = if registry == HUB_ALIAS { HUB.to_owned() } else { registry };
    let is_official = registry == HUB && !repository.contains('/');
    let repository = if is_official { format!("{LIBRARY}/{repository}") } else { repository.to_owned() };
    (registry, repository)
}

/// Whether the first part of a name is a registry instead of an owner.
fn names_registry(host: &str) -> bool {
    host == LOCALHOST || host.contains(['.', ':'])
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_port = |port: &str| {
        (1..=PORT_DIGITS).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit())
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// A part of the path: lower-case letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator =
        |run: &str| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-');
    text.starts_with(is_plain) && text.ends_with(is_plain) && text.split(is_plain).all(is_separator)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG_BYTES
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// Whether this is `sha256:` and 64 lower-case hexadecimal digits.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|digits| {
        digits.len() == DIGEST_DIGITS && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    fn normal(text: &str) -> String {
        ImageReference::parse(text).unwrap_or_else(|| panic!("{text}")).to_string()
    }

    #[test]
    fn references_are_normalised_as_docker_does() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, expected) in [
            ("python:3.12", "docker.io/library/python:3.12"),
            ("python", "docker.io/library/python:latest"),
            ("library/python", "docker.io/library/python:latest"),
            ("docker.io/python", "docker.io/library/python:latest"),
            ("index.docker.io/library/python", "docker.io/library/python:latest"),
            ("DOCKER.io/python", "docker.io/library/python:latest"),
            ("acme/tool:1", "docker.io/acme/tool:1"),
            ("ghcr.io/acme/team/app", "ghcr.io/acme/team/app:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000/app:v_1.0-rc", "localhost:5000/app:v_1.0-rc"),
            // Without a slash it is a tag.
            ("localhost:5000", "docker.io/library/localhost:5000"),
            ("a--b__c.d_e", "docker.io/library/a--b__c.d_e:latest"),
        ] {
            assert_eq!(normal(text), expected);
        }
        assert_eq!(normal(&format!("python@{digest}")), format!("docker.io/library/python@{digest}"));
        // The tag next to a digest has no meaning.
        assert_eq!(normal(&format!("python:3.12@{digest}")), format!("docker.io/library/python@{digest}"));
    }

    #[test]
    fn other_texts_are_no_references() {
        let long = format!("a/{}", "b".repeat(250));
        for text in [
            "",
            "UBUNTU:24.04",
            "ubuntu:24.04 ",
            "../../etc",
            "-x",
            "a..b",
            "a___b",
            "a/",
            "/a",
            "a//b",
            "ghcr.io/",
            "ghcr.io/A",
            "-a.io/x",
            "a.io:/x",
            "a.io:123456/x",
            "a:",
            "a:-1",
            "a:b:c",
            "a@sha256:abc",
            "a@sha512:00",
            "rootfs:/etc",
            "https://ghcr.io/a",
            "user@ghcr.io/a",
            "[::1]:5000/a",
            &long,
        ] {
            assert_eq!(ImageReference::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_of_one_image_are_the_same() {
        assert!(is_same_image("python:3.12", "docker.io/library/python:3.12"));
        assert!(is_same_image("code interpreter", "code interpreter"));
        assert!(!is_same_image("python:3.12", "python:3.13"));
        assert!(!is_same_image("python:3.12", "ghcr.io/library/python:3.12"));
        assert!(!is_same_image("-a", "-b"));
    }

    proptest! {
        #[test]
        fn a_normal_reference_stays_as_it_is(text in any::<String>()) {
            if let Some(reference) = ImageReference::parse(&text) {
                prop_assert_eq!(ImageReference::parse(&reference.to_string()), Some(reference));
            }
        }
    }
}
