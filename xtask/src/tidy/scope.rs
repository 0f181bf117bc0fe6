//! Decides which lines are code and which are tests. Called with all files, because the declaration of a module says whether the
//! file of the module is compiled for tests only.

use std::ops::RangeInclusive;

use super::lex::{Token, TokenKind};
use super::source::{Rust, attributed_end, attributes};

/// Features of crates that exist for tests, of the crate itself or of others.
const TEST_FEATURES: [&str; 2] = ["\"testing\"", "\"fuzzing\""];

/// How the lines of a crate are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrateRole {
    /// Code, apart from its tests.
    Product,
    /// All lines are tests.
    Tests,
    /// In no total.
    Benchmarks,
}

/// The role of the crate in `folder`.
pub fn role(folder: &str) -> CrateRole {
    match folder {
        "e2e" | "fuzz" => CrateRole::Tests,
        "bench" => CrateRole::Benchmarks,
        _ => CrateRole::Product,
    }
}

/// A file and its lines of tests.
#[derive(Debug)]
pub struct ScopedFile<'a> {
    pub rust: &'a Rust<'a>,
    pub role: CrateRole,
    /// Lines of tests that `tidy` does not leave out.
    more_tests: Vec<RangeInclusive<usize>>,
}

impl ScopedFile<'_> {
    /// Whether the line, counted from 1, is a line of tests.
    pub fn is_test(&self, line: usize) -> bool {
        self.role == CrateRole::Tests
            || self.rust.is_test(line)
            || self.more_tests.iter().any(|range| range.contains(&line))
    }
}

/// All files with their lines of tests.
pub fn scoped<'a>(files: &'a [Rust<'a>]) -> Vec<ScopedFile<'a>> {
    let scope = |rust: &'a Rust<'a>| ScopedFile {
        rust,
        role: role(rust.crate_folder()),
        more_tests: feature_lines(&rust.code),
    };
    let mut scoped: Vec<_> = files.iter().map(scope).collect();
    let modules: Vec<String> = scoped.iter().flat_map(test_modules).collect();
    for file in &mut scoped {
        let is_below = |module: &String| {
            let rest = file.rust.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        if modules.iter().any(is_below) {
            file.more_tests.push(1..=file.rust.lines.len());
        }
    }
    scoped
}

/// The path of the module `name` that the file at `path` declares, without `.rs`.
pub fn module_path(path: &str, name: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/{name}"),
        _ => format!("{}/{name}", path.trim_end_matches(".rs")),
    }
}

/// The paths of the modules that a file declares for tests only.
fn test_modules(file: &ScopedFile<'_>) -> Vec<String> {
    let declarations = file.rust.code.windows(3).filter(|words| {
        words[0].is("mod") && words[1].is_ident() && words[2].is(";") && file.is_test(words[0].line)
    });
    declarations.map(|words| module_path(file.rust.path, words[1].text)).collect()
}

/// The lines of items that need a feature for tests.
fn feature_lines(code: &[Token<'_>]) -> Vec<RangeInclusive<usize>> {
    let mut ranges = Vec::new();
    for attribute in attributes(code).iter().filter(|a| !a.inner && needs_test_feature(a.body(code))) {
        let end = attributed_end(code, attribute);
        ranges.push(code[attribute.start].line..=code[end].end_line);
    }
    ranges
}

fn needs_test_feature(body: &[Token<'_>]) -> bool {
    let names_feature = |t: &Token<'_>| t.kind == TokenKind::Literal && TEST_FEATURES.contains(&t.text);
    body.first().is_some_and(|t| t.is("cfg"))
        && !body.iter().any(|t| t.is("not"))
        && body.iter().any(names_feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths and lines that are tests.
    fn tests_of<'a>(files: &[(&'a str, &'a str)]) -> Vec<(&'a str, usize)> {
        let rust: Vec<_> = files.iter().map(|(path, text)| Rust::new(path, text)).collect();
        let mut found = Vec::new();
        for (file, (path, text)) in scoped(&rust).iter().zip(files) {
            let lines = 1..=text.lines().count();
            found.extend(lines.filter(|line| file.is_test(*line)).map(|line| (*path, line)));
        }
        found
    }

    #[test]
    fn a_module_declared_for_tests_is_tests_with_its_children() {
        let files = [
            ("crates/x/src/lib.rs", "mod a;\n#[cfg(test)]\nmod cases;"),
            ("crates/x/src/a.rs", "#[cfg(test)]\nmod cases;\nmod other;"),
            ("crates/x/src/a/cases.rs", "fn a() {}"),
            ("crates/x/src/a/other.rs", "fn a() {}"),
            ("crates/x/src/cases/deep.rs", "fn a() {}"),
            ("crates/x/src/casesets.rs", "fn a() {}"),
        ];
        let expected = [
            ("crates/x/src/lib.rs", 2),
            ("crates/x/src/lib.rs", 3),
            ("crates/x/src/a.rs", 1),
            ("crates/x/src/a.rs", 2),
            ("crates/x/src/a/cases.rs", 1),
            ("crates/x/src/cases/deep.rs", 1),
        ];
        assert_eq!(tests_of(&files), expected);
    }

    #[test]
    fn items_behind_a_feature_for_tests_are_tests() {
        let files = [
            ("crates/x/src/lib.rs", "#[cfg(any(test, feature = \"testing\"))]\npub mod fake;\npub mod real;"),
            ("crates/x/src/fake.rs", "fn a() {}"),
            (
                "crates/x/src/real.rs",
                "#[cfg(not(feature = \"testing\"))]\nfn a() {}\n#[cfg(feature = \"x\")]\nfn b() {}",
            ),
        ];
        let expected = [("crates/x/src/lib.rs", 1), ("crates/x/src/lib.rs", 2), ("crates/x/src/fake.rs", 1)];
        assert_eq!(tests_of(&files), expected);
    }

    #[test]
    fn helpers_of_the_end_to_end_tests_are_tests() {
        assert_eq!(tests_of(&[("e2e/src/lib.rs", "fn a() {}")]), [("e2e/src/lib.rs", 1)]);
        assert!(tests_of(&[("bench/src/main.rs", "fn a() {}")]).is_empty());
    }
}
