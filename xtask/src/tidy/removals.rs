//! No script lets apt-get remove a package: it belongs to the user of the machine. Called by `tidy`.
//!
//! apt-get resolves a conflict by removal, and with `-y` without a question: `./dev test` removed `qemu-utils`. With `--no-remove`
//! it fails, and says which packages are in conflict.

use super::Violation;
use super::programs::is_script;
use super::programs::shell::{self, line_of};
use super::source::SourceFile;

const RULE: &str = "apt-removes";
const FLAG: &str = "--no-remove";
/// Actions of apt-get that change no installed package.
const HARMLESS: [&str; 10] = [
    "update",
    "download",
    "indextargets",
    "changelog",
    "clean",
    "autoclean",
    "check",
    "source",
    "-s",
    "--simulate",
];
const REMOVING: [&str; 4] = ["remove", "purge", "autoremove", "autopurge"];

/// Finds calls of the package manager that may remove packages.
pub fn check(sources: &[SourceFile]) -> Vec<Violation> {
    sources.iter().filter(|file| is_script(file)).flat_map(violations).collect()
}

fn violations(file: &SourceFile) -> Vec<Violation> {
    let commands = shell::commands(&file.text).into_iter();
    let commands = commands.filter(|(_, program)| matches!(program.as_str(), "apt-get" | "aptitude"));
    let found = commands.filter_map(|(at, _)| {
        let words = shell::words(&file.text, at);
        let remedy = if words.iter().any(|word| REMOVING.contains(&word.as_str())) {
            "a package of the machine belongs to its user; tell the user what to remove and why"
        } else if words.iter().any(|word| word == FLAG || HARMLESS.contains(&word.as_str())) {
            return None;
        } else {
            "apt-get resolves a conflict by removal; add --no-remove"
        };
        Some(Violation::new(&file.path, line_of(&file.text, at), RULE, remedy))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(script: &str) -> Vec<usize> {
        let file = SourceFile { path: "dev.d/a.sh".into(), text: script.into() };
        check(&[file]).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_call_that_may_remove_packages_is_found() {
        assert_eq!(lines("a\nLC_ALL=C apt-get -q install -y x >&2\n"), [2]);
        assert_eq!(lines("apt-get -q \"$@\""), [1]);
        assert_eq!(lines("apt-get -y dist-upgrade"), [1]);
        assert_eq!(lines("apt-get --no-remove purge x"), [1]);
    }

    #[test]
    fn a_call_that_removes_nothing_passes() {
        assert_eq!(lines("apt-get -q --no-remove \"$@\" >&2"), [0; 0]);
        assert_eq!(lines("apt-get -q update; apt-get \"$@\" download runsc"), [0; 0]);
        assert_eq!(lines("say \"run: apt-get install x\""), [0; 0]);
        assert_eq!(lines("LC_ALL=C apt-get -qs install x"), [1]);
        assert_eq!(lines("LC_ALL=C apt-get -q -s install x"), [0; 0]);
    }
}
