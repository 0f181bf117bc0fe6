//! Every program that the repository starts is installed by the table of `dev.d/setup.sh`.
//!
//! `programs::rust` and `programs::shell` find the programs that code, tests, benches and scripts start. This module
//! decides which groups of the table are installed when a file runs, and reports each program that those groups do not install. It
//! relies on two conventions, because names that are passed as values cannot be found:
//!
//! - A parameter `program: &str` is a program that the function starts, and a parameter `command_line` is a list that
//!   begins with one. Their callers are checked.
//! - Any other `Command::new` that does not name its program has a comment `starts: NAME, NAME` on it or just above.

mod rust;
pub mod shell;
mod table;

use std::collections::BTreeSet;

use super::documents::shell_blocks;
use super::source::{Rust, SourceFile};
use super::{Violation, text_of};
use table::Table;

const SETUP: &str = "dev.d/setup.sh";

/// Packages that Debian marks essential or required, so that `debootstrap --variant=minbase` has them, with the programs used.
const ESSENTIAL: &[(&str, &[&str])] = &[
    ("apt", &["apt-get", "apt-cache", "apt-config"]),
    ("bash", &["bash"]),
    ("bsdutils", &["script"]),
    (
        "coreutils",
        &[
            "base64",
            "basename",
            "cat",
            "chmod",
            "chroot",
            "cp",
            "cut",
            "date",
            "dirname",
            "du",
            "env",
            "head",
            "id",
            "install",
            "ln",
            "ls",
            "mkdir",
            "mkfifo",
            "mknod",
            "mktemp",
            "mv",
            "nproc",
            "readlink",
            "rm",
            "rmdir",
            "sha256sum",
            "sleep",
            "sort",
            "stat",
            "sync",
            "tail",
            "tee",
            "timeout",
            "touch",
            "tr",
            "true",
            "uname",
            "wc",
            "yes",
        ],
    ),
    ("dash", &["sh"]),
    ("diffutils", &["cmp", "diff"]),
    ("dpkg", &["dpkg", "dpkg-deb", "dpkg-query"]),
    ("findutils", &["find", "xargs"]),
    ("grep", &["grep"]),
    ("gzip", &["gzip"]),
    ("libc-bin", &["ldd"]),
    ("mawk", &["awk"]),
    ("passwd", &["useradd"]),
    ("sed", &["sed"]),
    ("tar", &["tar"]),
    ("util-linux", &["dmesg", "flock", "mountpoint", "nsenter", "setpriv", "setsid", "unshare"]),
];

/// Programs of packages in the table other than the program that the row checks.
const PROVIDED: &[(&str, &[&str])] = &[
    ("docker.io", &["containerd"]),
    ("e2fsprogs", &["e2fsck", "tune2fs", "dumpe2fs", "resize2fs"]),
    // gcc depends on binutils.
    ("gcc", &["readelf"]),
    ("mount", &["mount", "swapoff", "umount"]),
    ("procps", &["kill", "pgrep", "pkill", "sysctl"]),
];

/// Optional programs, and programs that `need_cargo` checks.
const NOT_INSTALLED: &[(&str, &str)] = &[
    ("cargo", "need_cargo reports how to install it"),
    ("rustc", "need_cargo reports how to install it"),
    ("docker", "./dev docker-corpus needs a newer one than Debian 12 has, and reports that"),
    ("runsc", "./dev setup downloads it into target/gvisor/"),
    ("rustup", "used only if it is installed"),
    ("systemctl", "used only on hosts with systemd"),
    ("systemd-analyze", "the test of the unit reports that it was skipped"),
    ("xdg-open", "sbx prints the URL when it cannot be opened"),
];

/// Programs of this repository.
const OURS: [&str; 5] = ["sandboxd", "sbx", "sandbox-agent", "sandbox-launcher", "./dev"];

/// Files whose commands run inside a sandbox or a virtual machine.
const INSIDE: [&str; 3] = ["crates/agent/src/", "e2e/vm/init", "e2e/vm/first"];

/// Documents whose `sh` blocks `e2e/tests/docs.rs` runs.
pub const TESTED_DOCUMENTS: [&str; 7] = [
    "README.md",
    "docs/quick-start.md",
    "docs/api.md",
    "docs/hibernation.md",
    "docs/snapshots.md",
    "docs/sbx.md",
    "docs/templates.md",
];

/// A program that a file starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ProgramStart {
    line: usize,
    program: String,
}

/// Finds programs that the table does not have, and rows that nothing needs.
pub fn check(sources: &[SourceFile], rust: &[Rust<'_>]) -> Vec<Violation> {
    let table = Table::parse(text_of(sources, SETUP).unwrap_or_default());
    let scripts: Vec<&SourceFile> = sources.iter().filter(|file| is_script(file)).collect();
    let functions = scripts.iter().flat_map(|file| shell::functions(&file.text)).collect();
    let mut found = unused_groups(&table, &scripts);
    let starters = rust::Starters::new(rust);
    for file in rust.iter().filter(|file| !is_inside(file.path)) {
        let (starts, unnamed) = rust::starts(file, &starters);
        let allowed = |line| groups(file.path, file.is_test(line));
        found
            .extend(starts.iter().filter_map(|start| missing(file.path, start, allowed(start.line), &table)));
        for line in unnamed {
            let remedy = "cannot tell which program this starts; write `// starts: NAME, NAME` above it";
            found.push(Violation::new(file.path, line, "program-unnamed", remedy));
        }
    }
    for file in &scripts {
        let allowed = groups(&file.path, false);
        let starts = shell::starts(&file.text, &functions);
        found.extend(starts.iter().filter_map(|start| missing(&file.path, start, allowed, &table)));
    }
    for name in TESTED_DOCUMENTS {
        let text = text_of(sources, name).unwrap_or_default();
        for (line, block) in shell_blocks(text) {
            for mut start in shell::starts(&block, &BTreeSet::new()) {
                start.line += line - 1;
                found.extend(missing(name, &start, TESTS, &table));
            }
        }
    }
    found
}

/// Whether the file is a script that runs on the host.
pub fn is_script(file: &SourceFile) -> bool {
    let script = file.path.ends_with(".sh") || file.text.starts_with("#!/usr/bin/env bash");
    script && !is_inside(&file.path)
}

fn is_inside(path: &str) -> bool {
    INSIDE.iter().any(|prefix| path.starts_with(prefix))
}

/// The groups that `./dev test` passes to `setup`.
const TESTS: &[&str] = &["build", "run", "test", "bench"];

/// The groups of the table that are installed when the code at `path` runs.
fn groups(path: &str, is_test: bool) -> &'static [&'static str] {
    match path {
        _ if is_test || path.starts_with("e2e/") => TESTS,
        "dev" | "dev.d/build.sh" => &["build"],
        "dev.d/setup.sh" => &["build", "test"],
        "dev.d/lint.sh" => &["build", "lint"],
        "dev.d/runtimes.sh" => &["build", "run", "runtimes"],
        "dev.d/fuzz.sh" => &["build", "fuzz"],
        "dev.d/fresh.sh" | "dev.d/fresh-inside.sh" => &["fresh"],
        _ if path.starts_with("xtask/") => &["build", "run", "test", "bench", "lint"],
        _ if path.starts_with("bench/") => &["build", "run", "bench", "docker"],
        _ if path.starts_with("fuzz/") => &["build", "fuzz"],
        _ if path.starts_with("crates/") => &["run"],
        _ => TESTS,
    }
}

fn missing(path: &str, start: &ProgramStart, groups: &[&str], table: &Table<'_>) -> Option<Violation> {
    let program = &start.program;
    let name = program.rsplit_once('/').map_or(program.as_str(), |(_, name)| name);
    let lists = |list: &[(&str, &[&str])]| list.iter().any(|(_, programs)| programs.contains(&name));
    let ours = OURS.contains(&name) || program.starts_with("target/") || program.starts_with("./");
    if ours || lists(ESSENTIAL) || NOT_INSTALLED.iter().any(|(known, _)| *known == name) {
        return None;
    }
    let package = PROVIDED.iter().find(|(_, programs)| programs.contains(&name)).map(|(package, _)| *package);
    let rows: Vec<_> =
        table.rows.iter().filter(|row| package.map_or(row.is_check(name), |p| row.package == p)).collect();
    if rows.iter().any(|row| groups.contains(&row.group)) {
        return None;
    }
    let remedy = if rows.is_empty() {
        format!("{name} is in no row of {SETUP}; add its package to one of the groups {}", groups.join(", "))
    } else {
        let has: BTreeSet<_> = rows.iter().map(|row| row.group).collect();
        let has: Vec<_> = has.into_iter().collect();
        let (has, wanted) = (has.join(", "), groups.join(", "));
        format!("{name} is only in group {has} of {SETUP}, and this code runs with {wanted}")
    };
    Some(Violation::new(path, start.line, "program-not-installed", remedy))
}

/// Groups that no command passes to `setup` and that are therefore never installed.
fn unused_groups(table: &Table<'_>, scripts: &[&SourceFile]) -> Vec<Violation> {
    let mut used = BTreeSet::new();
    for line in scripts.iter().flat_map(|file| file.text.lines()) {
        if let Some((_, words)) = line.split_once("setup ") {
            used.extend(words.split(|c: char| !c.is_alphanumeric()).map(str::to_owned));
        }
        // Groups that are passed in a variable.
        if let Some((_, words)) = line.split_once("group=") {
            used.extend(words.split(|c: char| !c.is_alphanumeric()).map(str::to_owned));
        }
    }
    let unused = table.rows.iter().filter(|row| !used.contains(row.group));
    let violation = |row: &table::SetupRow<'_>| {
        let remedy = format!("no command passes group {} to setup", row.group);
        Violation::new(SETUP, row.line, "program-not-installed", remedy)
    };
    unused.map(violation).collect()
}

#[cfg(test)]
mod tests;
