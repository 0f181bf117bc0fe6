//! The file `.dockerignore` of a build context: which paths are not sent.
//!
//! A path is excluded by the last pattern that matches it or a directory above it; a pattern with `!` includes it again.

use std::io;
use std::path::Path;

use api::wildcard::Pattern;

/// The name of the file, in the directory of the context.
pub const FILE: &str = ".dockerignore";

/// The patterns of a file.
#[derive(Debug, Clone, Default)]
pub struct Ignore {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    pattern: Pattern,
    includes: bool,
}

/// What to do with an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Send,
    /// The directory itself is excluded; something below it may be included.
    Search,
    Skip,
}

impl Ignore {
    /// Reads the file of a directory. Without one nothing is excluded.
    pub fn read(dir: &Path) -> io::Result<Self> {
        match std::fs::read_to_string(dir.join(FILE)) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Parses the text of a file.
    pub fn parse(text: &str) -> io::Result<Self> {
        let mut rules = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (includes, pattern) = match line.strip_prefix('!') {
                Some(pattern) => (true, pattern.trim()),
                None => (false, line),
            };
            let clean = clean(pattern);
            if clean.is_empty() {
                continue;
            }
            let pattern = Pattern::new(&clean).map_err(|reason| {
                io::Error::other(format!("{FILE}, line {}: '{line}': {reason}", number + 1))
            })?;
            rules.push(Rule { pattern, includes });
        }
        Ok(Self { rules })
    }

    /// Includes a file whatever the patterns say, such as the Dockerfile.
    pub fn keep(&mut self, path: &str) {
        self.rules.push(Rule { pattern: Pattern::literal(&clean(path)), includes: true });
    }

    /// What to do with the entry at a relative path.
    pub fn choose(&self, path: &Path, is_directory: bool) -> Choice {
        let matches = |rule: &Rule| {
            let mut above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
            above.any(|path| rule.pattern.matches(&path.to_string_lossy()))
        };
        match self.rules.iter().rev().find(|rule| matches(rule)) {
            None | Some(Rule { includes: true, .. }) => Choice::Send,
            Some(_) if is_directory && self.rules.iter().any(|rule| rule.includes) => Choice::Search,
            Some(_) => Choice::Skip,
        }
    }
}

/// Without `.`, `..`, and slashes at the ends.
fn clean(pattern: &str) -> String {
    let mut parts = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let mut ignore = Ignore::parse(
            "# comment\n/node_modules/\n**/*.log\n*.tmp\n!keep.tmp\ntarget\n!target/release/app\n\n./docs/*.md\nDockerfile",
        )
        .unwrap();
        ignore.keep("./Dockerfile");
        for (path, is_directory, choice) in [
            ("node_modules", true, Choice::Search),
            ("node_modules/a/b.js", false, Choice::Skip),
            ("src/node_modules", true, Choice::Send),
            ("a.log", false, Choice::Skip),
            ("deep/er/a.log", false, Choice::Skip),
            ("a.tmp", false, Choice::Skip),
            ("deep/a.tmp", false, Choice::Send),
            ("keep.tmp", false, Choice::Send),
            ("target/debug", true, Choice::Search),
            ("target/release/app", false, Choice::Send),
            ("target/release/other", false, Choice::Skip),
            ("docs/a.md", false, Choice::Skip),
            ("docs/a/b.md", false, Choice::Send),
            ("Dockerfile", false, Choice::Send),
            (".dockerignore", false, Choice::Send),
        ] {
            assert_eq!(ignore.choose(Path::new(path), is_directory), choice, "{path}");
        }
        // As Docker 26 does with the same directory.
        let ignore = Ignore::parse("/node_modules/\na\n!a/b\n./c/../bb\nstar\\*x\n").unwrap();
        for (path, choice) in [
            ("node_modules/x/y", Choice::Skip),
            ("a/b/f", Choice::Send),
            ("a/g", Choice::Skip),
            ("bb", Choice::Skip),
            ("c/h", Choice::Send),
            ("star*x", Choice::Skip),
            ("starzx", Choice::Send),
        ] {
            assert_eq!(ignore.choose(Path::new(path), false), choice, "{path}");
        }
        assert_eq!(Ignore::parse("a\nb").unwrap().choose(Path::new("a"), true), Choice::Skip);
        assert!(Ignore::parse("ok\n[").unwrap_err().to_string().contains("line 2"));
    }
}
