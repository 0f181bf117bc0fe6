//! Every module file begins with `//!`, and a module `foo` with children is `foo.rs` beside `foo/`, not `mod.rs`.

use super::Violation;
use super::source::{Rust, is_test_file};

/// Finds files without a header, and files called `mod.rs`.
pub fn check(file: &Rust<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    if file.path.ends_with("/mod.rs") && !is_test_file(file.path) {
        let better = file.path.trim_end_matches("/mod.rs");
        found.push(Violation::new(file.path, 1, "mod-rs", format!("name it {better}.rs")));
    }
    if !is_test_file(file.path) && !file.lines.first().is_some_and(|line| line.starts_with("//!")) {
        let remedy =
            "begin with //!: its role, its callers, how it can fail and what a failure leaves behind";
        found.push(Violation::new(file.path, 1, "module-header", remedy));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&Rust::new(path, text)).into_iter().map(|v| v.rule).collect()
    }

    #[test]
    fn a_module_without_a_header_is_found() {
        assert_eq!(rules("crates/x/src/a.rs", "use b;\n//! late\n"), ["module-header"]);
        assert_eq!(rules("crates/x/src/a.rs", ""), ["module-header"]);
        assert!(rules("crates/x/src/a.rs", "//! Why.\nuse b;\n").is_empty());
        assert!(rules("crates/x/src/a/tests.rs", "use b;\n").is_empty());
    }

    #[test]
    fn mod_rs_is_found() {
        assert_eq!(rules("crates/x/src/a/mod.rs", "//! Why.\n"), ["mod-rs"]);
        assert!(rules("crates/x/src/modrs.rs", "//! Why.\n").is_empty());
        assert!(rules("e2e/tests/common/mod.rs", "\n").is_empty());
    }
}
