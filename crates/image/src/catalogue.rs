//! The sources of each image name, tried in order. The configuration's `[images]` table adds to the default set or
//! replaces its entries.

use std::collections::BTreeMap;

use rules::ImageReference;

use crate::error::ImageError;
use crate::source::ImageSource;

/// The common base of the default names' Debian sources, which is built and stored once.
const DEBIAN_BASE: &str = "debian:bookworm+ca-certificates+curl+git+iproute2+iputils-ping+jq\
    +less+procps+socat+sudo";
/// The code interpreter, with the packages that it needs and those that most code for it needs.
const INTERPRETER_PACKAGES: &str = "python3+python3-pip+python3-ipykernel+python3-jupyter-client+python3-numpy\
    +python3-pandas+python3-matplotlib+node22+code-interpreter";
/// What E2B's template `base` has beside the common base.
const E2B_PACKAGES: &str = "build-essential+python3+python3-pip+python3-venv+node22";
/// A screen without a monitor, a desktop on it, programs that act on it, and noVNC to look at it: what E2B's package for desktops runs.
const DESKTOP_PACKAGES: &str = "dbus-x11+firefox-esr+fonts-dejavu-core+libgtk-3-bin+mousepad+net-tools+novnc+python3\
    +scrot+websockify+x11-utils+x11-xserver-utils+x11vnc+xauth+xdg-utils+xdotool+xfce4+xfce4-terminal+xvfb+desktop";
/// That of a reference with a digest.
const NAME_CHARS: usize = 255;
const SOURCES: usize = 16;

/// Names and their sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue(BTreeMap<String, Vec<ImageSource>>);

impl Catalogue {
    /// The default names. `custom` has no source until the operator configures one.
    #[must_use]
    pub fn default_set() -> Self {
        let set = [
            ("ubuntu:24.04", vec!["docker.io/library/ubuntu:24.04".to_owned(), DEBIAN_BASE.to_owned()]),
            (
                "python:3.12",
                vec![
                    "docker.io/library/python:3.12".to_owned(),
                    format!("{DEBIAN_BASE}+python3+python3-pip+python3-venv"),
                ],
            ),
            (
                "node:22",
                vec!["docker.io/library/node:22".to_owned(), format!("{DEBIAN_BASE}+node22+user-node")],
            ),
            ("code-interpreter", vec![format!("{DEBIAN_BASE}+{INTERPRETER_PACKAGES}")]),
            ("custom", vec![]),
            ("desktop", vec![format!("{DEBIAN_BASE}+{DESKTOP_PACKAGES}")]),
            ("e2b-base", vec![format!("{DEBIAN_BASE}+{E2B_PACKAGES}")]),
        ];
        let mut catalogue = Self::default();
        for (name, sources) in set {
            #[expect(clippy::expect_used, reason = "constant texts, parsed by a test")]
            catalogue.set(name, &sources).expect("the default sources parse");
        }
        catalogue
    }

    /// Sets the sources of a name, in the order in which they are tried. Replaces existing ones.
    pub fn set<S: AsRef<str>>(&mut self, name: &str, sources: &[S]) -> Result<(), ImageError> {
        check_name(name)?;
        if sources.len() > SOURCES {
            let reason = format!("it has {} sources; at most {SOURCES} are allowed", sources.len());
            return Err(ImageError::BadName { name: name.to_owned(), reason });
        }
        let parsed = sources.iter().map(|source| source.as_ref().parse()).collect::<Result<_, _>>()?;
        self.0.insert(name.to_owned(), parsed);
        Ok(())
    }

    /// The sources of an image, in the order in which they are tried. `None` if no image has the name.
    #[must_use]
    pub fn sources(&self, name: &str) -> Option<&[ImageSource]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The name that is another form of the reference, if its image comes from there.
    pub(crate) fn name_of(&self, reference: &ImageReference) -> Option<&str> {
        let is_reference = |text: &str| ImageReference::parse(text).as_ref() == Some(reference);
        let is_source = |source: &ImageSource| match source {
            ImageSource::Registry { reference } => is_reference(reference),
            ImageSource::OciLayout { .. } | ImageSource::Rootfs { .. } | ImageSource::Debian { .. } => false,
        };
        let mut entries = self.0.iter();
        entries
            .find(|(name, sources)| is_reference(name) && sources.iter().any(is_source))
            .map(|(name, _)| name.as_str())
    }

    /// The names of all images.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// A name must be printable and short; it is encoded before it reaches a path.
pub(crate) fn check_name(name: &str) -> Result<(), ImageError> {
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > NAME_CHARS {
        format!("it has {} characters; at most {NAME_CHARS} are allowed", name.len())
    } else if !name.bytes().all(|b| b.is_ascii_graphic()) {
        "it has a space or another character that is not printable ASCII".to_owned()
    } else {
        return Ok(());
    };
    Err(ImageError::BadName { name: name.chars().take(NAME_CHARS).collect(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_sources_parse_and_share_a_base() {
        let catalogue = Catalogue::default_set();
        assert_eq!(
            catalogue.names().collect::<Vec<_>>(),
            ["code-interpreter", "custom", "desktop", "e2b-base", "node:22", "python:3.12", "ubuntu:24.04"]
        );
        for name in ["code-interpreter", "desktop", "e2b-base", "node:22", "python:3.12", "ubuntu:24.04"] {
            let last = catalogue.sources(name).unwrap().last().unwrap().to_string();
            assert!(last.starts_with(DEBIAN_BASE), "{last}");
        }
        assert_eq!(catalogue.sources("custom"), Some(&[][..]));
    }

    #[test]
    fn other_forms_of_a_name_are_found_if_the_image_comes_from_there() {
        let mut catalogue = Catalogue::default_set();
        catalogue.set("debian:12", &["rootfs:/srv/debian"]).unwrap();
        let name_of = |text: &str| catalogue.name_of(&ImageReference::parse(text).unwrap());
        assert_eq!(name_of("docker.io/library/python:3.12"), Some("python:3.12"));
        assert_eq!(name_of("library/python:3.12"), Some("python:3.12"));
        for other in ["python:3.13", "ghcr.io/library/python:3.12", "docker.io/library/debian:12"] {
            assert_eq!(name_of(other), None, "{other}");
        }
    }

    #[test]
    fn names_and_sources_are_checked() {
        let mut catalogue = Catalogue::default();
        for name in ["", "a b", "ä", "a\n", &"x".repeat(256)] {
            assert!(
                matches!(catalogue.set(name, &["rootfs:/x"]), Err(ImageError::BadName { .. })),
                "{name:?}"
            );
        }
        assert!(matches!(catalogue.set("a", &["nonsense"]), Err(ImageError::BadSource { .. })));
        assert!(matches!(catalogue.set("a", &["rootfs:/x"; 17]), Err(ImageError::BadName { .. })));
        assert_eq!(catalogue, Catalogue::default());
    }
}
