//! Text that no file may contain: marks of unfinished work, trailing blanks, paths of a developer's machine, hosts of package
//! registries. `tidy: allow(RULE): REASON` on a line excludes it from a rule.

use super::Violation;
use super::source::Source;

/// Written by cargo, or copied word for word.
const NOT_OURS: [&str; 3] = ["Cargo.lock", "fuzz/Cargo.lock", "LICENSE"];

pub fn check(file: &Source) -> Vec<Violation> {
    if NOT_OURS.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for (rule, remedy) in broken(line) {
            if !excused(line, rule) {
                found.push(Violation::new(&file.path, at + 1, rule, remedy));
            }
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        let last = file.text.lines().count();
        found.push(Violation::new(&file.path, last, "trailing-blanks", "end the file with a line end"));
    }
    found
}

fn broken(line: &str) -> Vec<(&'static str, String)> {
    // In pieces, so that this file passes its own check.
    let unfinished = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];
    let macros = [concat!("todo", "!("), concat!("unimplemented", "!(")];
    let homes = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let hosts = [
        concat!("npm", "js.org"),
        concat!("index.", "crates.io"),
        concat!("static.", "crates.io"),
        concat!("py", "pi.org"),
        concat!("python", "hosted.org"),
        concat!("proxy.", "golang.org"),
    ];
    let mut found = Vec::new();
    if let Some(mark) =
        unfinished.iter().find(|m| has_word(line, m)).or(macros.iter().find(|m| line.contains(*m)))
    {
        found.push((
            "unfinished",
            format!("{mark}: finish it, or open an issue and say here what holds today"),
        ));
    }
    if line.ends_with([' ', '\t']) {
        found.push(("trailing-blanks", "remove the blanks at the end".to_owned()));
    }
    if let Some(home) = homes.iter().find(|home| begins_path(line, home)) {
        found.push(("machine-path", format!("{home} is a path of one machine; use a relative one")));
    }
    if let Some(host) = hosts.iter().find(|host| line.contains(*host)) {
        found.push((
            "registry-host",
            format!("{host}: leave the choice of a registry to the package manager"),
        ));
    }
    found
}

fn excused(line: &str, rule: &str) -> bool {
    let reason = line.split_once(&format!("tidy: allow({rule}):")).map(|(_, reason)| reason.trim());
    reason.is_some_and(|reason| reason.chars().filter(|c| c.is_alphabetic()).count() >= 5)
}

fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c == '_' || c.is_alphanumeric();
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part_of_word) && !line[at + word.len()..].starts_with(part_of_word)
    })
}

/// Whether `line` names a path that begins with `folder`: `a/work/` and `{dir}/work/` do not.
fn begins_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at].ends_with(|c: char| {
            c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}' | '$' | '*' | ')' | '>')
        })
    })
}

#[cfg(test)]
mod tests;
