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
    pub changes: VolumeChanges,
}

/// What sbx does with the changes of a sandbox to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeChanges {
    /// Copies them back after the command: `:rw`.
    CopiedBack,
    /// Drops them: `:ro`.
    Dropped,
    /// Drops them, and says which ones: a volume without either.
    Reported,
}

/// The arguments of `sbx cp`.
#[derive(Debug, Args)]
pub struct CpArguments {
    /// Local path, SANDBOX:PATH, or - for standard input; a directory ending in /. means its contents
    ///
    /// Standard input is the content of a file, or a tar archive if TO is an existing directory or ends in /.
    pub from: OsString,
    /// Local path, SANDBOX:PATH, or - for standard output; a name ending in / is a directory
    ///
    /// A file is written to standard output as it is, without an archive around it; a directory as a tar archive, whose names begin with that
    /// of the directory, so that 'sbx cp SANDBOX:DIR - | tar x' unpacks it.
    pub to: OsString,
    /// Give the copy in a sandbox to this user, and to this group or the user's own; by default it belongs to root
    #[arg(long, value_name = "USER[:GROUP]", value_parser = owner)]
    pub chown: Option<String>,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// Parses the owner of a copy. Without a group it is that of the user, or the one with the number of the user.
pub fn owner(text: &str) -> Result<String, String> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once(':') {
        None if text.is_empty() => {}
        None if is_number(text) => return Ok(format!("{text}:{text}")),
        // An empty group means that of the user.
        None => return Ok(format!("{text}:")),
        Some((user, group)) if !user.is_empty() && !group.is_empty() && !group.contains(':') => {
            return Ok(text.to_owned());
        }
        Some(_) => {}
    }
    Err("expected USER or USER:GROUP, names or numbers of the sandbox".to_owned())
}

/// Parses `LOCAL:PATH` with options at the end that may be left out, such as `:rw`. Names may be any bytes.
pub fn volume(text: &OsStr) -> Result<Volume, String> {
    let (bytes, changes) = without_options(text.as_bytes());
    let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
    let colon = bytes.iter().rposition(|byte| *byte == b':');
    match colon.map(|at| (&bytes[..at], &bytes[at + 1..])) {
        Some((local, inside)) if !local.is_empty() && inside.starts_with(b"/") => {
            Ok(Volume { local: path(local), inside: path(inside), changes })
        }
        _ => Err("expected LOCAL:PATH with an absolute path in the sandbox, such as .:/workspace".to_owned()),
    }
}

/// The text without the options of Docker at its end, and what they say about changes. `z` and `Z` are for mounts, and there are none.
fn without_options(text: &[u8]) -> (&[u8], VolumeChanges) {
    let none = (text, VolumeChanges::Reported);
    let Some(colon) = text.iter().rposition(|byte| *byte == b':') else { return none };
    let options = || text[colon + 1..].split(|byte| *byte == b',');
    if !options().all(|option| matches!(option, b"rw" | b"ro" | b"z" | b"Z")) {
        return none;
    }
    let has = |name: &[u8]| options().any(|option| option == name);
    let changes = match (has(b"rw"), has(b"ro")) {
        (true, _) => VolumeChanges::CopiedBack,
        (false, true) => VolumeChanges::Dropped,
        (false, false) => VolumeChanges::Reported,
    };
    (&text[..colon], changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_a_group() {
        for (text, given) in [("app", "app:"), ("1000", "1000:1000"), ("1000:50", "1000:50"), ("a:b", "a:b")]
        {
            assert_eq!(owner(text).as_deref(), Ok(given));
        }
        for wrong in ["", ":", ":b", "a:", "a:b:c"] {
            assert!(owner(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn volumes_are_parsed() {
        let odd = volume(OsStr::from_bytes(b"dd\xfe:/w\xff:rw")).unwrap();
        assert_eq!(odd.local.as_os_str().as_bytes(), b"dd\xfe");
        assert_eq!(odd.inside.as_os_str().as_bytes(), b"/w\xff");
        let volume = |text: &str| volume(OsStr::new(text));
        let volume_of = |local: &str, inside: &str, changes| Volume {
            local: local.into(),
            inside: inside.into(),
            changes,
        };
        use VolumeChanges::{CopiedBack, Dropped, Reported};
        assert_eq!(volume(".:/workspace"), Ok(volume_of(".", "/workspace", Reported)));
        assert_eq!(volume(".:/workspace:ro"), Ok(volume_of(".", "/workspace", Dropped)));
        assert_eq!(volume("/a:b:/c:rw"), Ok(volume_of("/a:b", "/c", CopiedBack)));
        for (text, changes) in [
            (".:/w:ro,z", Dropped),
            (".:/w:Z", Reported),
            (".:/w:rw,Z", CopiedBack),
            (".:/w:z,rw", CopiedBack),
        ] {
            assert_eq!(volume(text), Ok(volume_of(".", "/w", changes)), "{text}");
        }
        for text in ["", ".", ".:", ":/a", ".:relative", "/a:rw", "/a:z", ".:/w:rw,", "rw:z"] {
            assert!(volume(text).is_err(), "{text}");
        }
    }
}
