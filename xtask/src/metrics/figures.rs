//! Adds up the figures of all files. Called by `metrics`; its results are printed by `report`, checked by `bounds` and compared
//! by `saved`.

use std::collections::{BTreeMap, BTreeSet};

use super::items::{self, PublicKind};
use crate::tidy::scope::{self, CrateRole, ScopedFile};
use crate::tidy::source::Rust;
use crate::tidy::{sizes, type_names};

/// The figures of one crate, or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CrateFigures {
    /// Lines of code without tests, blank lines and comments.
    pub code: usize,
    /// Lines of tests without blank lines and comments.
    pub tests: usize,
    /// Public items, fields excluded.
    pub items: usize,
    pub undocumented_items: usize,
    /// Public fields with a name.
    pub fields: usize,
    pub undocumented_fields: usize,
    /// Files directly in `src`.
    pub top_files: usize,
    /// Functions with a `bool` parameter.
    pub bool_functions: usize,
}

impl CrateFigures {
    /// Each figure with the name that it has in a saved file.
    pub fn named(&self) -> [(&'static str, usize); 8] {
        [
            ("code", self.code),
            ("tests", self.tests),
            ("items", self.items),
            ("undocumented_items", self.undocumented_items),
            ("fields", self.fields),
            ("undocumented_fields", self.undocumented_fields),
            ("top_files", self.top_files),
            ("bool_functions", self.bool_functions),
        ]
    }

    fn add(&mut self, other: &Self) {
        self.code += other.code;
        self.tests += other.tests;
        self.items += other.items;
        self.undocumented_items += other.undocumented_items;
        self.fields += other.fields;
        self.undocumented_fields += other.undocumented_fields;
        self.top_files += other.top_files;
        self.bool_functions += other.bool_functions;
    }
}

/// The figures of the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// By the folder of the crate, benchmarks included.
    pub crates: BTreeMap<String, CrateFigures>,
    /// Length and path of each file of `crates/` that is not only tests, the shortest first.
    pub files: Vec<(usize, String)>,
    /// The functions above the limit of `tidy`.
    pub long_functions: Vec<String>,
    /// The places of all definitions of a type name.
    pub type_names: BTreeMap<String, Vec<String>>,
}

impl Figures {
    /// The figures of `files`, which are all files of the repository.
    pub fn of(files: &[Rust<'_>]) -> Self {
        let has_header = |file: &&Rust<'_>| file.lines.first().is_some_and(|line| line.starts_with("//!"));
        let headed: BTreeSet<&str> = files.iter().filter(has_header).map(|file| file.path).collect();
        let mut figures = Self::default();
        for file in &scope::scoped(files) {
            figures.add_lines(file);
            if file.role == CrateRole::Product {
                figures.add_declarations(file, &headed);
            }
        }
        figures.files.sort();
        figures
    }

    /// The sum of all crates but the benchmarks.
    pub fn total(&self) -> CrateFigures {
        let mut total = CrateFigures::default();
        for (name, figures) in &self.crates {
            if scope::role(name) != CrateRole::Benchmarks {
                total.add(figures);
            }
        }
        total
    }

    /// The length of files at a percentile; 100 is the longest.
    pub fn file_lines(&self, percent: usize) -> usize {
        let lines: Vec<usize> = self.files.iter().map(|(lines, _)| *lines).collect();
        sizes::percentile(&lines, percent).unwrap_or_default()
    }

    /// The type names with more than `limit` definitions, most definitions first.
    pub fn repeated_types(&self, limit: usize) -> Vec<(&str, &[String])> {
        let names = self.type_names.iter().filter(|(_, places)| places.len() > limit);
        let mut names: Vec<_> = names.map(|(name, places)| (name.as_str(), places.as_slice())).collect();
        names.sort_by_key(|(name, places)| (usize::MAX - places.len(), *name));
        names
    }

    fn add_lines(&mut self, file: &ScopedFile<'_>) {
        let path = file.rust.path;
        let figures = self.crates.entry(file.rust.crate_folder().to_owned()).or_default();
        for line in code_lines(file.rust) {
            if file.is_test(line) {
                figures.tests += 1;
            } else {
                figures.code += 1;
            }
        }
        figures.top_files += usize::from(is_top_file(path));
        let length = (1..=file.rust.lines.len()).filter(|line| !file.is_test(*line)).count();
        if path.starts_with("crates/") && length > 0 {
            self.files.push((length, path.to_owned()));
        }
    }

    /// Adds what the code of a product crate declares. `headed` has the paths of the files that begin with `//!`.
    fn add_declarations(&mut self, file: &ScopedFile<'_>, headed: &BTreeSet<&str>) {
        let path = file.rust.path;
        let figures = self.crates.entry(file.rust.crate_folder().to_owned()).or_default();
        for item in items::public_items(file.rust).iter().filter(|item| !file.is_test(item.line)) {
            let own_file = || format!("{}.rs", scope::module_path(path, item.name));
            let by_file = item.kind == PublicKind::Module && headed.contains(own_file().as_str());
            let undocumented = usize::from(!item.documented && !by_file);
            if item.kind == PublicKind::Field {
                figures.fields += 1;
                figures.undocumented_fields += undocumented;
            } else {
                figures.items += 1;
                figures.undocumented_items += undocumented;
            }
        }
        let bools = items::bool_functions(file.rust);
        figures.bool_functions += bools.iter().filter(|function| !file.is_test(function.line)).count();
        for name in type_names::type_definitions(file.rust).iter().filter(|name| !file.is_test(name.line)) {
            let places = self.type_names.entry(name.name.to_owned()).or_default();
            places.push(format!("{path}:{}", name.line));
        }
        for (name, first, last) in sizes::functions(file.rust) {
            let lines = last - first + 1;
            if lines > sizes::FUNCTION_LINES && !file.is_test(first) {
                self.long_functions.push(format!("{path}:{first}: fn {name} has {lines} lines"));
            }
        }
    }
}

/// The lines with code, without blank lines of texts that have many lines.
fn code_lines(file: &Rust<'_>) -> BTreeSet<usize> {
    let lines = file.code.iter().flat_map(|token| token.line..=token.end_line);
    let is_blank = |line: &usize| file.lines.get(line - 1).is_none_or(|text| text.trim().is_empty());
    lines.filter(|line| !is_blank(line)).collect()
}

/// Whether the file is directly in the `src` of a crate.
fn is_top_file(path: &str) -> bool {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    let parts: Vec<&str> = path.split('/').collect();
    parts.len() == 3 && parts[1] == "src"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(files: &[(&str, &str)]) -> Figures {
        let rust: Vec<_> = files.iter().map(|(path, text)| Rust::new(path, text)).collect();
        Figures::of(&rust)
    }

    #[test]
    fn lines_of_code_and_of_tests_are_counted_apart() {
        let text = "//! Why.\n\nfn a() { // b\n    \"c\n\nd\";\n}\n\n#[cfg(test)]\nmod tests {\n    // e\n    fn f() {}\n}\n";
        let found = figures(&[("crates/x/src/a.rs", text), ("crates/x/tests/b.rs", "fn a() {}\n")]);
        assert_eq!((found.crates["x"].code, found.crates["x"].tests), (4, 5));
        assert_eq!(found.files, [(8, "crates/x/src/a.rs".to_owned())]);
    }

    #[test]
    fn benchmarks_are_in_no_total_and_end_to_end_tests_are_tests() {
        let line = "pub fn a(b: bool) {}\n";
        let found =
            figures(&[("bench/src/main.rs", line), ("e2e/src/lib.rs", line), ("crates/x/src/lib.rs", line)]);
        let expected = CrateFigures {
            code: 1,
            tests: 1,
            items: 1,
            undocumented_items: 1,
            top_files: 2,
            bool_functions: 1,
            ..CrateFigures::default()
        };
        assert_eq!(found.total(), expected);
        assert_eq!(found.crates["bench"].code, 1);
        assert_eq!(found.files.len(), 1);
    }

    #[test]
    fn a_module_is_documented_by_its_file() {
        let files = [
            ("crates/x/src/lib.rs", "pub mod a;\npub mod b;\n"),
            ("crates/x/src/a.rs", "//! Why.\n"),
            ("crates/x/src/b.rs", "fn b() {}\n"),
        ];
        let total = figures(&files).total();
        assert_eq!((total.items, total.undocumented_items), (2, 1));
    }

    #[test]
    fn declarations_in_tests_are_not_counted() {
        let text = "#[cfg(test)]\nmod tests {\n    pub struct A { pub b: u8 }\n    pub fn c(d: bool) {}\n}\n";
        let found = figures(&[("crates/x/src/a.rs", text)]);
        let total = found.total();
        assert_eq!((total.items, total.fields, total.bool_functions, found.type_names.len()), (0, 0, 0, 0));
    }

    #[test]
    fn top_files_are_those_of_src_itself() {
        let paths = ["crates/x/src/a.rs", "crates/x/src/a/b.rs", "crates/x/tests/c.rs", "crates/x/build.rs"];
        let found = figures(&paths.map(|path| (path, "fn a() {}\n")));
        assert_eq!(found.crates["x"].top_files, 1);
    }

    #[test]
    fn repeated_types_are_sorted_by_their_number() {
        let files = [
            ("crates/x/src/a.rs", "struct A;\nstruct B;\nstruct C;\n"),
            ("crates/x/src/b.rs", "enum A {}\nenum B {}\n"),
            ("crates/y/src/c.rs", "trait B {}\n"),
        ];
        let found = figures(&files);
        let names: Vec<_> =
            found.repeated_types(1).iter().map(|(name, places)| (*name, places.len())).collect();
        assert_eq!(names, [("B", 3), ("A", 2)]);
        assert_eq!(found.type_names["A"], ["crates/x/src/a.rs:1", "crates/x/src/b.rs:1"]);
    }

    #[test]
    fn a_long_function_is_found() {
        let text = format!("fn long() {{\n{}}}\n", "x();\n".repeat(sizes::FUNCTION_LINES));
        let found = figures(&[("crates/x/src/a.rs", &text), ("e2e/src/lib.rs", &text)]);
        assert_eq!(found.long_functions, ["crates/x/src/a.rs:1: fn long has 72 lines"]);
    }
}
