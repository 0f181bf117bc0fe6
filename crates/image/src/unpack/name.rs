//! Parses the names in an archive, and whiteouts, whose names begin with `.wh.`.

use crate::fault::Fault;
use crate::limits::ImageLimits;

use super::Whiteouts;

/// A path in the archive. No component is empty, `.` or `..`, or contains a slash or NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// The directory's path below the root, empty for the root itself.
    pub(super) parent: Vec<u8>,
    /// `None` for the root itself.
    pub(super) last: Option<Vec<u8>>,
}

const COMPONENT_BYTES: usize = 255;

/// Splits a path. A leading slash is ignored; `..` is refused even if the path stays inside.
pub(super) fn parse(path: &[u8], limits: &ImageLimits) -> Result<Name, Fault> {
    let bad = |why: &str| Err(Fault::refused(format!("path {} {why}", show(path))));
    if path.len() > limits.path_bytes {
        return bad(&format!("is longer than the {} bytes allowed", limits.path_bytes));
    }
    if path.contains(&0) {
        return bad("contains a NUL byte");
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return bad("leads out of its directory by '..'"),
            part if part.len() > COMPONENT_BYTES => return bad("has a component of more than 255 bytes"),
            part => parts.push(part),
        }
    }
    if parts.len() > limits.depth {
        return bad(&format!("has more than the {} components allowed", limits.depth));
    }
    let last = parts.pop().map(<[u8]>::to_vec);
    Ok(Name { parent: parts.join(&b'/'), last })
}

/// The meaning of a last component.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Itself,
    /// Opaque whiteout: its directory hides the lower layers.
    Opaque,
    /// Whiteout: removes this name from the same directory.
    Whiteout(Vec<u8>),
    /// Metadata of other tools; ignored.
    Nothing,
}

pub(super) fn parse_meaning(last: &[u8], whiteouts: Whiteouts) -> Result<Meaning, Fault> {
    let Some(rest) = last.strip_prefix(b".wh.") else { return Ok(Meaning::Itself) };
    if whiteouts == Whiteouts::Refuse {
        return Err(Fault::refused(format!(
            "{} is a whiteout, which only a layer of an image may have",
            show(last)
        )));
    }
    match rest {
        b".wh..opq" => Ok(Meaning::Opaque),
        rest if rest.starts_with(b".wh.") => Ok(Meaning::Nothing),
        b"" | b"." | b".." => {
            Err(Fault::refused(format!("{} is a whiteout without a file name", show(last))))
        }
        rest => Ok(Meaning::Whiteout(rest.to_vec())),
    }
}

/// A name for a message: printable and short.
pub(super) fn show(path: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(path).chars().take(200).collect();
    format!("'{}'", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(path: &str) -> (String, Option<String>) {
        let name = parse(path.as_bytes(), &ImageLimits::default()).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(name.parent), name.last.map(text))
    }

    #[test]
    fn paths_are_split() {
        assert_eq!(ok("a"), (String::new(), Some("a".into())));
        assert_eq!(ok("./a/b//c/."), ("a/b".into(), Some("c".into())));
        assert_eq!(ok("/etc/passwd"), ("etc".into(), Some("passwd".into())));
        assert_eq!(ok("./"), (String::new(), None));
    }

    #[test]
    fn paths_that_lead_out_or_are_too_long_are_refused() {
        let long = "x".repeat(256);
        let deep = "d/".repeat(129);
        let wide = "ab/".repeat(2_000);
        for path in ["..", "a/../../b", "a/..", "/..", "a\0b", &long, &deep, &wide] {
            assert!(parse(path.as_bytes(), &ImageLimits::default()).is_err(), "{path}");
        }
    }

    #[test]
    fn whiteouts_follow_the_image_specification() {
        let honour = |last: &[u8]| parse_meaning(last, Whiteouts::Honour);
        assert_eq!(honour(b"file").unwrap(), Meaning::Itself);
        assert_eq!(honour(b".wh.file").unwrap(), Meaning::Whiteout(b"file".to_vec()));
        assert_eq!(honour(b".wh..wh..opq").unwrap(), Meaning::Opaque);
        assert_eq!(honour(b".wh..wh.plnk").unwrap(), Meaning::Nothing);
        for bad in [&b".wh."[..], b".wh..", b".wh..."] {
            assert!(honour(bad).is_err());
        }
        assert!(parse_meaning(b".wh.x", Whiteouts::Refuse).is_err());
        assert_eq!(parse_meaning(b"wh.x", Whiteouts::Refuse).unwrap(), Meaning::Itself);
    }
}
