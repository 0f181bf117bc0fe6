//! Paths in documents must exist, and the README's commands must begin with programs that a reader has. A test in e2e/ runs these
//! commands.

use std::collections::BTreeSet;

use super::source::SourceFile;
use super::{Violation, text_of};

/// Documents that may name removed paths.
const HISTORY: [&str; 1] = ["CHANGELOG.md"];
/// Programs that the README's commands may use besides `./dev` and the programs of target/bin/.
const PROGRAMS: [&str; 4] = ["git", "cd", "apt-get", "rustup"];
const OUR_PROGRAMS: [&str; 4] = ["sandboxd", "sandbox-agent", "sandbox-launcher", "sbx"];

/// Finds paths in documents that do not exist, and commands of the README that a reader does not have.
pub fn check(sources: &[SourceFile]) -> Vec<Violation> {
    let known = Known::new(sources);
    let mut found = Vec::new();
    for file in sources.iter().filter(|s| s.path.ends_with(".md") && !HISTORY.contains(&s.path.as_str())) {
        for (line, text) in prose(&file.text) {
            for path in named_paths(text, &file.path, &known) {
                if !known.has(&path) {
                    let remedy = format!("{path} does not exist; name its replacement");
                    found.push(Violation::new(&file.path, line, "path-exists", remedy));
                }
            }
        }
    }
    let dev = text_of(sources, "dev").unwrap_or_default();
    for (line, command) in commands(text_of(sources, "README.md").unwrap_or_default()) {
        if let Err(remedy) = check_command(command, dev) {
            found.push(Violation::new("README.md", line, "readme-command", remedy));
        }
    }
    found
}

/// Files and folders of the repository.
struct Known<'a> {
    files: BTreeSet<&'a str>,
    folders: BTreeSet<&'a str>,
    top: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    fn new(sources: &'a [SourceFile]) -> Self {
        let files: BTreeSet<_> = sources.iter().map(|s| s.path.as_str()).collect();
        let slashes = files.iter().flat_map(|f| f.match_indices('/').map(|(at, _)| &f[..at]));
        let top = files.iter().filter_map(|f| f.split_once('/')).map(|(top, _)| top);
        Self { folders: slashes.collect(), top: top.collect(), files }
    }

    fn has(&self, path: &str) -> bool {
        self.files.contains(path) || self.folders.contains(path)
    }
}

/// The lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// Paths of this repository in a line: links, and code spans that begin with a folder of the repository.
fn named_paths(line: &str, document: &str, known: &Known<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for span in line.split('`').skip(1).step_by(2) {
        let path = span.trim_start_matches("./").trim_end_matches('/');
        let first = path.split('/').next().unwrap_or_default();
        let pattern = path.contains(|c: char| c.is_whitespace() || "<>{}*$=…".contains(c));
        if path.contains('/') && known.top.contains(first) && !pattern {
            found.push(path.to_owned());
        }
    }
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let link = link.split('#').next().unwrap_or_default();
        if !link.is_empty() && !link.contains(':') {
            found.push(joined(folder, link));
        }
    }
    found
}

/// `link` relative to `folder`, with `..` and `.` resolved.
fn joined(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in link.split('/').filter(|p| !p.is_empty() && *p != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// The commands of the blocks fenced as `sh`, with their lines. Comments, blank lines and continued lines are left out.
fn commands(text: &str) -> Vec<(usize, &str)> {
    let (mut inside, mut continued) = (false, false);
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            inside = line.trim_end() == "```sh";
            continue;
        }
        if inside && !continued && !line.trim().is_empty() && !line.starts_with('#') {
            found.push((at + 1, line));
        }
        continued = inside && line.ends_with('\\');
    }
    found
}

/// The blocks fenced as `sh`, each with the line on which it begins.
pub fn shell_blocks(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            inside = line.trim_end() == "```sh";
            if inside {
                found.push((at + 2, String::new()));
            }
        } else if let (true, Some((_, block))) = (inside, found.last_mut()) {
            block.push_str(line);
            block.push('\n');
        }
    }
    found
}

fn check_command(command: &str, dev: &str) -> Result<(), String> {
    let mut words = command.split_whitespace().skip_while(|w| *w == "sudo");
    let program = words.next().unwrap_or_default();
    if program == "./dev" {
        let verb = words.next().unwrap_or("help");
        let known = dev.lines().any(|line| {
            line.trim_start().split(')').next().is_some_and(|v| v.split(" | ").any(|v| v == verb))
        });
        return if known { Ok(()) } else { Err(format!("./dev has no command {verb}")) };
    }
    let ours = program.strip_prefix("target/bin/").is_some_and(|p| OUR_PROGRAMS.contains(&p));
    if ours || PROGRAMS.contains(&program) {
        return Ok(());
    }
    Err(format!("a reader may not have {program}; use ./dev, target/bin/… or one of {}", PROGRAMS.join(", ")))
}

#[cfg(test)]
mod tests;
