//! Parses the image sources of the configuration.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::ImageError;

/// One source of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// An image in an OCI registry.
    Registry { reference: String },
    /// A directory in the OCI image layout.
    OciLayout { dir: PathBuf, select: LayoutSelect },
    /// A tar (plain, gzip or zstd) or a directory.
    Rootfs { path: PathBuf },
    /// A Debian root, built on this host. The package `node22` adds Node 22 and npm, `code-interpreter` the
    /// code interpreter, `desktop` the paths of a desktop, `user-node` the user of official images of Node.
    Debian { suite: String, packages: Vec<String> },
}

/// Selects an image of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutSelect {
    /// The only image for this machine.
    Only,
    /// The image with this `org.opencontainers.image.ref.name`.
    Tag(String),
    /// The image with this digest.
    Digest(String),
}

const SOURCE_CHARS: usize = 4_096;
const PACKAGES: usize = 256;

impl FromStr for ImageSource {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let parsed: Result<ImageSource, Malformed> = if text.len() > SOURCE_CHARS {
            Err(format!("it is longer than {SOURCE_CHARS} bytes").into())
        } else if text.contains(|c: char| c.is_control()) {
            Err("it has a control character".into())
        } else if let Some(rest) = text.strip_prefix("oci-layout:") {
            layout(rest)
        } else if let Some(rest) = text.strip_prefix("rootfs:") {
            rootfs(rest)
        } else if let Some(rest) = text.strip_prefix("debian:") {
            debian(rest)
        } else {
            registry(text)
        };
        parsed.map_err(|cause| ImageError::BadSource {
            text: text.chars().take(200).collect(),
            reason: cause.to_string(),
        })
    }
}

/// Why a text is not a source.
type Malformed = Box<dyn Error + Send + Sync>;

fn layout(rest: &str) -> Result<ImageSource, Malformed> {
    let (dir, select) = match rest.rsplit_once('@') {
        Some((dir, digest)) if is_sha256(digest) => (dir, LayoutSelect::Digest(digest.to_owned())),
        Some((_, digest)) if digest.starts_with("sha256:") => {
            return Err(
                format!("'{}' is not sha256: and 64 hexadecimal digits", digest.escape_debug()).into()
            );
        }
        _ => match rest.rsplit_once(':') {
            Some((dir, tag)) if !tag.contains('/') && !tag.is_empty() => {
                (dir, LayoutSelect::Tag(tag.to_owned()))
            }
            _ => (rest, LayoutSelect::Only),
        },
    };
    if dir.is_empty() {
        return Err("oci-layout: needs a directory".into());
    }
    Ok(ImageSource::OciLayout { dir: PathBuf::from(dir), select })
}

fn rootfs(rest: &str) -> Result<ImageSource, Malformed> {
    if rest.is_empty() {
        return Err("rootfs: needs the path of a tar or a directory".into());
    }
    Ok(ImageSource::Rootfs { path: PathBuf::from(rest) })
}

fn debian(rest: &str) -> Result<ImageSource, Malformed> {
    let mut parts = rest.split('+');
    let suite = parts.next().unwrap_or_default();
    if !is_word(suite, "-.") {
        return Err(format!("'{}' is not a Debian suite such as bookworm", suite.escape_debug()).into());
    }
    let packages: Vec<String> = parts.map(str::to_owned).collect();
    if packages.len() > PACKAGES {
        return Err(format!("it names {} packages; at most {PACKAGES} are allowed", packages.len()).into());
    }
    match packages.iter().find(|package| package.len() < 2 || !is_word(package, "-.")) {
        Some(bad) => Err(format!(
            "'{}' is not a Debian package name (names with a plus sign are not supported: use a package that depends on it)",
            bad.escape_debug()
        )
        .into()),
        None => Ok(ImageSource::Debian { suite: suite.to_owned(), packages }),
    }
}

/// Lower-case letters, digits and `more`, beginning with a letter or digit, so that it cannot be an option of a
/// command.
fn is_word(text: &str, more: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 100 && text.starts_with(is_plain) && text.chars().all(|c| is_plain(c) || more.contains(c))
}

fn registry(text: &str) -> Result<ImageSource, Malformed> {
    // With a default registry, a misspelt prefix would become a lookup in that registry.
    let host = text.split_once('/').map(|(host, _)| host);
    if !host.is_some_and(|host| host == "localhost" || host.contains(['.', ':'])) {
        return Err("an image reference must begin with its registry".into());
    }
    let reference: oci_client::Reference = text.parse()?;
    if let Some(digest) = reference.digest()
        && !is_sha256(digest)
    {
        return Err(format!("'{}' is not sha256: and 64 hexadecimal digits", digest.escape_debug()).into());
    }
    Ok(ImageSource::Registry { reference: text.to_owned() })
}

/// Whether this is `sha256:` and 64 lower-case hexadecimal digits, the only form used in paths and URLs.
pub(crate) fn is_sha256(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(is_hex64)
}

pub(crate) fn is_hex64(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry { reference } => f.write_str(reference),
            Self::OciLayout { dir, select } => {
                write!(f, "oci-layout:{}", dir.display())?;
                match select {
                    LayoutSelect::Only => Ok(()),
                    LayoutSelect::Tag(tag) => write!(f, ":{tag}"),
                    LayoutSelect::Digest(digest) => write!(f, "@{digest}"),
                }
            }
            Self::Rootfs { path } => write!(f, "rootfs:{}", path.display()),
            Self::Debian { suite, packages } => {
                write!(f, "debian:{suite}")?;
                packages.iter().try_for_each(|package| write!(f, "+{package}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_round_trip() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for text in [
            "docker.io/library/ubuntu:24.04",
            "localhost:5000/a/b:c",
            "127.0.0.1:5000/a",
            "oci-layout:/srv/x",
            "oci-layout:/srv/x:tag",
            &format!("oci-layout:/srv/x@{digest}"),
            &format!("quay.io/a/b@{digest}"),
            "rootfs:/srv/a:b.tar",
            "debian:bookworm",
            "debian:bookworm+git+python3-venv",
        ] {
            assert_eq!(text.parse::<ImageSource>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_sources_are_refused_with_the_allowed_form() {
        for text in [
            "",
            "ubuntu:24.04",
            "library/ubuntu",
            "rootf:/x",
            "rootfs:",
            "oci-layout:",
            "oci-layout:/x@sha256:abc",
            "quay.io/a@sha512:abc",
            "debian:",
            "debian:-o+git",
            "debian:bookworm+",
            "debian:bookworm+g++",
            "debian:bookworm+--hook",
            "debian:bookworm+a b",
            "quay.io/UPPER",
            "rootfs:/a\nb",
        ] {
            let refused = text.parse::<ImageSource>().expect_err(text).to_string();
            assert!(refused.contains("debian:SUITE"), "{refused}");
        }
    }
}
