//! The arguments of `cp`, and `-v` of `run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;

/// A `-v` of `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub local: PathBuf,
    pub inside: PathBuf,
    /// Copy it back after the command.
    pub back: bool,
}

/// The arguments of `sbx cp`.
#[derive(Debug, Args)]
pub struct CpArguments {
    /// Local path, SANDBOX:PATH, or - for standard input; a directory ending in /. means its contents
    ///
    /// Standard input is the content of a file, or a tar archive if TO is an existing directory.
    pub from: OsString,
    /// Local path, SANDBOX:PATH, or - for standard output; a name ending in / is a directory
    ///
    /// A directory is written to standard output as a tar archive, whose names begin with that of the directory.
    pub to: OsString,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// Parses `LOCAL:PATH` with options at the end that may be left out, such as `:rw`. Names may be any bytes.
pub fn volume(text: &OsStr) -> Result<Volume, String> {
    let (bytes, back) = without_options(text.as_bytes());
    let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
    let colon = bytes.iter().rposition(|byte| *byte == b':');
    match colon.map(|at| (&bytes[..at], &bytes[at + 1..])) {
        Some((local, inside)) if !local.is_empty() && inside.starts_with(b"/") => {
            Ok(Volume { local: path(local), inside: path(inside), back })
        }
        _ => Err("expected LOCAL:PATH with an absolute path in the sandbox, such as .:/workspace".to_owned()),
    }
}

/// The text without the options of Docker at its end, and whether `rw` is one of them. `z` and `Z` are for mounts, and there are none.
fn without_options(text: &[u8]) -> (&[u8], bool) {
    let Some(colon) = text.iter().rposition(|byte| *byte == b':') else { return (text, false) };
    let options = || text[colon + 1..].split(|byte| *byte == b',');
    if options().all(|option| matches!(option, b"rw" | b"ro" | b"z" | b"Z")) {
        (&text[..colon], options().any(|option| option == b"rw"))
    } else {
        (text, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_parsed() {
        let odd = volume(OsStr::from_bytes(b"dd\xfe:/w\xff:rw")).unwrap();
        assert_eq!(odd.local.as_os_str().as_bytes(), b"dd\xfe");
        assert_eq!(odd.inside.as_os_str().as_bytes(), b"/w\xff");
        let volume = |text: &str| volume(OsStr::new(text));
        let volume_of =
            |local: &str, inside: &str, back| Volume { local: local.into(), inside: inside.into(), back };
        assert_eq!(volume(".:/workspace"), Ok(volume_of(".", "/workspace", false)));
        assert_eq!(volume(".:/workspace:ro"), volume(".:/workspace"));
        assert_eq!(volume("/a:b:/c:rw"), Ok(volume_of("/a:b", "/c", true)));
        for (text, back) in
            [(".:/w:ro,z", false), (".:/w:Z", false), (".:/w:rw,Z", true), (".:/w:z,rw", true)]
        {
            assert_eq!(volume(text), Ok(volume_of(".", "/w", back)), "{text}");
        }
        for text in ["", ".", ".:", ":/a", ".:relative", "/a:rw", "/a:z", ".:/w:rw,", "rw:z"] {
            assert!(volume(text).is_err(), "{text}");
        }
    }
}
