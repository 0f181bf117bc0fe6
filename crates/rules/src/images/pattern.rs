//! Patterns of images that an operator allows, such as `docker.io/library/*`.

use std::fmt;

use crate::images::reference::{
    ImageReference, ImageVersion, is_digest, split_digest, split_registry, split_tag,
};

/// Every image of every registry.
const EVERYTHING: &str = "**";
const PATTERN_BYTES: usize = 512;

/// A pattern of images. `*` stands for any text without a slash, `**` for any text. Without tag and digest it matches all versions. Its
/// name is normalised like that of a reference: `python` is `docker.io/library/python`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePattern {
    text: String,
    name: Vec<Piece>,
    version: VersionPattern,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum VersionPattern {
    Any,
    Tag(Vec<Piece>),
    Digest(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Byte(u8),
    /// Any text without a slash.
    Part,
    Text,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadImagePattern {
    text: String,
    reason: &'static str,
}

impl fmt::Display for BadImagePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = crate::quoted(&self.text);
        write!(
            f,
            "{text} is no pattern of images: {}; allowed: a pattern such as docker.io/library/*",
            self.reason
        )
    }
}

impl std::error::Error for BadImagePattern {}

impl ImagePattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, BadImagePattern> {
        let bad = |reason| BadImagePattern { text: text.chars().take(200).collect(), reason };
        if text == EVERYTHING {
            return Ok(Self { text: text.to_owned(), name: pieces(text), version: VersionPattern::Any });
        }
        if text.len() > PATTERN_BYTES {
            return Err(bad("it is too long"));
        }
        let (rest, digest) = split_digest(text);
        let (name, tag) = split_tag(rest);
        if name.split('/').any(str::is_empty) {
            return Err(bad("a part of its name is empty"));
        }
        let first = name.split('/').next().unwrap_or_default();
        if first.contains('*') && name.contains('/') && !first.contains('.') {
            return Err(bad("its first part must be a registry or an owner"));
        }
        let (registry, repository) = split_registry(name);
        let name = format!("{registry}/{repository}");
        let is_plain = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-' | b'*')
        };
        if !name.bytes().all(|byte| is_plain(byte) || matches!(byte, b'/' | b':')) {
            return Err(bad("its name has a character that no image has"));
        }
        if !tag.unwrap_or("*").bytes().all(|byte| is_plain(byte) || byte.is_ascii_uppercase()) {
            return Err(bad("its tag has a character that no tag has"));
        }
        let (version, suffix) = match (digest, tag) {
            (Some(digest), _) if is_digest(digest) => {
                (VersionPattern::Digest(digest.to_owned()), format!("@{digest}"))
            }
            (Some(_), _) => return Err(bad("its digest is not sha256: and 64 hexadecimal digits")),
            (None, Some("")) => return Err(bad("its tag is empty")),
            (None, Some(tag)) => (VersionPattern::Tag(pieces(tag)), format!(":{tag}")),
            (None, None) => (VersionPattern::Any, String::new()),
        };
        Ok(Self { text: format!("{name}{suffix}"), name: pieces(&name), version })
    }

    /// Whether the operator allows this image by the pattern.
    #[must_use]
    pub fn matches(&self, reference: &ImageReference) -> bool {
        let version = match (&self.version, reference.version()) {
            (VersionPattern::Any, _) => true,
            (VersionPattern::Tag(pattern), ImageVersion::Tag(tag)) => fits(pattern, tag),
            (VersionPattern::Digest(allowed), ImageVersion::Digest(digest)) => allowed == digest,
            (VersionPattern::Tag(_), ImageVersion::Digest(_))
            | (VersionPattern::Digest(_), ImageVersion::Tag(_)) => false,
        };
        version && fits(&self.name, &reference.name())
    }
}

impl fmt::Display for ImagePattern {
    /// The normalised form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for byte in text.bytes() {
        match (byte, pieces.last()) {
            (b'*', Some(Piece::Part)) => {
                pieces.pop();
                pieces.push(Piece::Text);
            }
            (b'*', Some(Piece::Text)) => {}
            (b'*', _) => pieces.push(Piece::Part),
            (byte, _) => pieces.push(Piece::Byte(byte)),
        }
    }
    pieces
}

/// Follows all ways through the pattern at once, so the time is bounded by the product of both lengths.
fn fits(pattern: &[Piece], text: &str) -> bool {
    let text = text.as_bytes();
    // Whether the pieces so far can match the text up to here.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for piece in pattern {
        let mut next = vec![false; text.len() + 1];
        match piece {
            Piece::Byte(byte) => {
                for (at, found) in text.iter().enumerate() {
                    next[at + 1] = reached[at] && found == byte;
                }
            }
            Piece::Part | Piece::Text => {
                next[0] = reached[0];
                for (at, found) in text.iter().enumerate() {
                    let continues = next[at] && (*piece == Piece::Text || *found != b'/');
                    next[at + 1] = continues || reached[at + 1];
                }
            }
        }
        reached = next;
        // Most patterns differ in the first bytes.
        if !reached.contains(&true) {
            return false;
        }
    }
    reached[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(pattern: &str, image: &str) -> bool {
        let reference = ImageReference::parse(image).unwrap_or_else(|| panic!("{image}"));
        ImagePattern::parse(pattern).unwrap_or_else(|error| panic!("{error}")).matches(&reference)
    }

    #[test]
    fn patterns_match_normalised_references() {
        let digest = format!("sha256:{}", "b".repeat(64));
        let pinned = format!("python@{digest}");
        for (pattern, image) in [
            ("docker.io/library/*", "python:3.12"),
            ("docker.io/library/*", pinned.as_str()),
            ("*", "python"),
            ("python", "docker.io/library/python:3"),
            ("index.docker.io/library/python", "python"),
            ("acme/*", "docker.io/acme/tool:2"),
            ("ghcr.io/acme/**", "ghcr.io/acme/team/app:1"),
            ("ghcr.io/*/app", "ghcr.io/acme/app"),
            ("*.example.com/**", "registry.example.com/a/b"),
            ("python:3.*", "python:3.12"),
            ("localhost:5000/*", "localhost:5000/app:1"),
            ("**", "ghcr.io/any/thing:1"),
            (pinned.as_str(), pinned.as_str()),
        ] {
            assert!(allows(pattern, image), "{pattern} {image}");
        }
    }

    #[test]
    fn a_pattern_matches_nothing_beyond_its_parts() {
        let digest = format!("sha256:{}", "b".repeat(64));
        let pinned = format!("python@{digest}");
        for (pattern, image) in [
            ("docker.io/library/*", "acme/python"),
            ("docker.io/library/*", "ghcr.io/library/python"),
            ("docker.io/library/*", "docker.io.example.com/library/python"),
            ("ghcr.io/acme/*", "ghcr.io/acme/team/app"),
            ("ghcr.io/acme/*", "ghcr.io/acme2/app"),
            ("*.example.com/**", "registry.example.com.evil.org/a"),
            ("*.example.com/**", "example.org/registry.example.com/a"),
            ("*.example.com/**", "registry.example.com:5000/a"),
            ("python:3.*", "python:latest"),
            ("python:3.12", pinned.as_str()),
            (pinned.as_str(), "python:3.12"),
        ] {
            assert!(!allows(pattern, image), "{pattern} {image}");
        }
    }

    #[test]
    fn other_texts_are_no_patterns() {
        let long = "a".repeat(600);
        for text in [
            "",
            "/",
            "a//b",
            "ghcr.io/A/*",
            "*/x",
            "**/x",
            "a b",
            "a:",
            "a@sha256:*",
            "https://ghcr.io/*",
            &long,
        ] {
            let error = ImagePattern::parse(text).expect_err(text).to_string();
            assert!(error.contains("docker.io/library/*"), "{error}");
        }
    }

    #[test]
    fn a_pattern_is_shown_in_its_normal_form() {
        for (text, shown) in
            [("python:3", "docker.io/library/python:3"), ("acme/*", "docker.io/acme/*"), ("**", "**")]
        {
            assert_eq!(ImagePattern::parse(text).map(|pattern| pattern.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn many_stars_take_no_longer() {
        let pattern = format!("docker.io/{}b", "a*".repeat(200));
        assert!(!allows(&pattern, &format!("docker.io/{}/x", "a".repeat(120))));
    }
}
