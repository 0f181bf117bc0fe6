//! Errors of file operations, with messages for the client. Reported by the entry point of `files`.

use guest_proto::FileErrorKind;
use rustix::io::Errno;

/// Characters of a path that a message shows.
const MAX_CHARS: usize = 512;

/// Why an operation failed.
#[derive(Debug)]
pub enum FileFailure {
    Reported {
        kind: FileErrorKind,
        message: String,
    },
    /// It cannot be reported: the host has closed the output, or content has been sent already.
    Unreportable,
}

impl FileFailure {
    pub fn new(kind: FileErrorKind, message: impl Into<String>) -> Self {
        Self::Reported { kind, message: message.into() }
    }

    /// The error for an errno of a call with a path.
    pub fn of(errno: Errno, path: &[u8]) -> Self {
        let path = shown(path);
        let (kind, message) = match errno {
            Errno::NOENT => (FileErrorKind::NotFound, format!("there is no '{path}'")),
            Errno::EXIST => (FileErrorKind::Exists, format!("'{path}' exists already")),
            Errno::ISDIR => (FileErrorKind::NotAFile, format!("'{path}' is a directory")),
            Errno::NXIO | Errno::NODEV => (FileErrorKind::NotAFile, format!("'{path}' is not a file")),
            Errno::NOTDIR => (
                FileErrorKind::NotADirectory,
                format!("'{path}' is not a directory, or has a component that is not one"),
            ),
            Errno::NOTEMPTY => (FileErrorKind::NotEmpty, format!("the directory '{path}' is not empty")),
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY => (
                FileErrorKind::Denied,
                format!("the sandbox does not permit this operation on '{path}': {}", text(errno)),
            ),
            Errno::NOSPC | Errno::DQUOT => {
                (FileErrorKind::DiskFull, format!("the sandbox's disk has no space left for '{path}'"))
            }
            Errno::LOOP | Errno::NAMETOOLONG | Errno::INVAL | Errno::FBIG => (
                FileErrorKind::Invalid,
                format!("the operation on '{path}' is not possible: {}", text(errno)),
            ),
            _ => (FileErrorKind::Failed, format!("'{path}': {}", text(errno))),
        };
        Self::Reported { kind, message }
    }

    /// For `map_err`.
    pub fn with(path: &[u8]) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::of(errno, path)
    }
}

/// A path for a message: short, printable, in UTF-8.
pub fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let mut shown: String = text.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The kernel's message, without the number.
fn text(errno: Errno) -> String {
    let text = errno.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(errno: Errno, path: &[u8]) -> (FileErrorKind, String) {
        match FileFailure::of(errno, path) {
            FileFailure::Reported { kind, message } => (kind, message),
            FileFailure::Unreportable => panic!("it is reported"),
        }
    }

    #[test]
    fn each_errno_has_the_kind_that_the_host_knows() {
        for (errno, kind) in [
            (Errno::NOENT, FileErrorKind::NotFound),
            (Errno::EXIST, FileErrorKind::Exists),
            (Errno::ISDIR, FileErrorKind::NotAFile),
            (Errno::NXIO, FileErrorKind::NotAFile),
            (Errno::NODEV, FileErrorKind::NotAFile),
            (Errno::NOTDIR, FileErrorKind::NotADirectory),
            (Errno::NOTEMPTY, FileErrorKind::NotEmpty),
            (Errno::ACCESS, FileErrorKind::Denied),
            (Errno::PERM, FileErrorKind::Denied),
            (Errno::ROFS, FileErrorKind::Denied),
            (Errno::BUSY, FileErrorKind::Denied),
            (Errno::NOSPC, FileErrorKind::DiskFull),
            (Errno::DQUOT, FileErrorKind::DiskFull),
            (Errno::LOOP, FileErrorKind::Invalid),
            (Errno::NAMETOOLONG, FileErrorKind::Invalid),
            (Errno::FBIG, FileErrorKind::Invalid),
            (Errno::IO, FileErrorKind::Failed),
        ] {
            let (found, message) = reported(errno, b"/a");
            assert_eq!(found, kind, "{errno:?}");
            assert!(message.contains("'/a'") && !message.contains("os error"), "{message}");
        }
    }

    #[test]
    fn a_path_in_a_message_is_short_and_printable() {
        assert_eq!(shown(b"/a\n\x1b[2J\xff"), "/a\\n\\u{1b}[2J\u{fffd}");
        let fits = "ä".repeat(MAX_CHARS);
        assert_eq!(shown(fits.as_bytes()), fits);
        assert_eq!(shown(format!("{fits}x").as_bytes()), format!("{fits}…"));
        let (_, message) = reported(Errno::NOENT, &vec![b'\n'; 10_000]);
        assert!(message.len() < guest_proto::MAX_MESSAGE, "{} bytes", message.len());
    }
}
