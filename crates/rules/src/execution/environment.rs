//! The environment of a command. Later sources override earlier ones: defaults, image, sandbox, command.
//!
//! The engine calls it before each command. Nothing fails: entries of the image that cannot be passed to a process are dropped.

use std::collections::BTreeMap;

/// What a root login sets.
const DEFAULTS: [(&str, &str); 6] = [
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "root"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("SHELL", "/bin/bash"),
    ("USER", "root"),
];

/// All variables of a command. `image` holds `NAME=value` entries, as image configurations do; the last entry of a name counts.
pub fn environment(
    image: &[String],
    sandbox: &BTreeMap<String, String>,
    command: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut merged: BTreeMap<String, String> =
        DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for (name, value) in image.iter().filter_map(|entry| entry.split_once('=')) {
        if !name.is_empty() && !name.contains('\0') && !value.contains('\0') {
            merged.insert(name.to_owned(), value.to_owned());
        }
    }
    for (name, value) in sandbox.iter().chain(command) {
        merged.insert(name.clone(), value.clone());
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn image(entries: &[&str]) -> Vec<String> {
        entries.iter().map(|entry| (*entry).to_owned()).collect()
    }

    #[test]
    fn the_default_environment_is_that_of_a_root_login() {
        assert_eq!(environment(&[], &map(&[]), &map(&[])), map(&DEFAULTS));
    }

    #[test]
    fn each_layer_beats_the_ones_below() {
        let merged = environment(
            &image(&["PATH=/opt/bin:/bin", "A=image", "B=image", "C=image", "EMPTY=", "URL=a=b"]),
            &map(&[("B", "sandbox"), ("C", "sandbox"), ("HOME", "/workspace")]),
            &map(&[("C", "command")]),
        );
        for (name, value) in [
            ("PATH", "/opt/bin:/bin"),
            ("A", "image"),
            ("B", "sandbox"),
            ("C", "command"),
            ("HOME", "/workspace"),
            ("USER", "root"),
            ("EMPTY", ""),
            ("URL", "a=b"),
        ] {
            assert_eq!(merged.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(merged.len(), DEFAULTS.len() + 5);
    }

    #[test]
    fn bad_entries_of_an_image_are_left_out_and_the_last_of_two_counts() {
        let merged =
            environment(&image(&["NOVALUE", "=x", "N\0=x", "V=\0", "T=1", "T=2"]), &map(&[]), &map(&[]));
        assert_eq!(merged.get("T").map(String::as_str), Some("2"));
        assert_eq!(merged.len(), DEFAULTS.len() + 1);
    }
}
