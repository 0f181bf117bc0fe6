//! Without tests, a function has at most 70 lines and a file at most 600. A file may hold a whole concept, but files must not grow
//! in general: the median and the 90th percentile of their lengths are bounded.

use super::Violation;
use super::source::{Rust, SourceFile, closing, is_test_file, opens};

const FILE_LINES: usize = 600;
/// Bounds on the lines of all files. They were 95 and 238 when the bounds were set.
const MEDIAN_LINES: usize = 100;
const P90_LINES: usize = 250;
/// The most lines of a function.
pub const FUNCTION_LINES: usize = 70;

/// Finds functions and files above their limits.
pub fn check(file: &Rust<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let lines = lines_without_tests(file);
    if lines > FILE_LINES {
        let remedy = format!("{lines} lines without tests, at most {FILE_LINES}; split it by topic");
        found.push(Violation::new(file.path, 1, "file-size", remedy));
    }
    for (name, first, last) in functions(file) {
        let lines = last - first + 1;
        if lines > FUNCTION_LINES && !file.is_test(first) {
            let remedy = format!(
                "fn {name} has {lines} lines, at most {FUNCTION_LINES}; extract its steps into functions"
            );
            found.push(Violation::new(file.path, first, "function-size", remedy));
        }
    }
    found
}

/// The median and the 90th percentile of all files.
pub fn check_all(files: &[Rust<'_>]) -> Vec<Violation> {
    let mut lines: Vec<_> = files.iter().map(lines_without_tests).filter(|lines| *lines > 0).collect();
    lines.sort_unstable();
    let bounds = [("median", 50, MEDIAN_LINES), ("90th percentile", 90, P90_LINES)];
    let exceeded = bounds.into_iter().filter_map(|(name, percent, bound)| {
        let value = percentile(&lines, percent).filter(|value| *value > bound)?;
        let remedy = format!(
            "the {name} of the lines of all files is {value}, at most {bound}; split the largest files"
        );
        Some(Violation::new("xtask/src/tidy/sizes.rs", 1, "file-size", remedy))
    });
    exceeded.collect()
}

/// The value below which `percent` of the sorted values are; 100 is the last one. `None` if there are no values.
pub fn percentile(sorted: &[usize], percent: usize) -> Option<usize> {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
}

fn lines_without_tests(file: &Rust<'_>) -> usize {
    (1..=file.lines.len()).filter(|line| !file.is_test(*line)).count()
}

/// Shell scripts have the same limit per file.
pub fn check_script(file: &SourceFile) -> Option<Violation> {
    let lines = file.text.lines().count();
    let script = file.text.starts_with("#!") || file.path.ends_with(".sh");
    (script && lines > FILE_LINES && !is_test_file(&file.path)).then(|| {
        let remedy = format!("{lines} lines, at most {FILE_LINES}; split it by topic");
        Violation::new(&file.path, 1, "file-size", remedy)
    })
}

/// Name, first and last line of every function with a body.
pub fn functions<'a>(file: &Rust<'a>) -> Vec<(&'a str, usize, usize)> {
    let code = &file.code;
    let mut found = Vec::new();
    for at in 0..code.len().saturating_sub(1) {
        // `fn(u8)` is a type.
        if !code[at].is("fn") || !code[at + 1].is_ident() {
            continue;
        }
        let mut next = at + 2;
        while next < code.len() && !code[next].is("{") && !code[next].is(";") {
            next = if opens(&code[next]) { closing(code, next) + 1 } else { next + 1 };
        }
        if code.get(next).is_some_and(|t| t.is("{")) {
            found.push((code[at + 1].text, code[at].line, code[closing(code, next)].end_line));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long(a: [u8; 2]) -> u8\nwhere u8: Copy {{\n{}}}\n", "x();\n".repeat(lines - 3))
    }

    #[test]
    fn a_function_above_the_limit_is_found() {
        let check = |text: &str| check(&Rust::new("crates/x/src/a.rs", text));
        assert!(check(&function(70)).is_empty());
        let found = check(&function(71));
        assert_eq!((found.len(), found[0].line, found[0].rule), (1, 1, "function-size"));
        assert!(check(&format!("#[cfg(test)]\nmod tests {{\n{}}}", function(90))).is_empty());
        assert!(check(&format!("trait A {{ fn a(); }}\n{}", "\n".repeat(90))).is_empty());
    }

    #[test]
    fn a_file_above_the_limit_without_tests_is_found() {
        let check = |text: &str| check(&Rust::new("crates/x/src/a.rs", text));
        assert!(check(&"// x\n".repeat(600)).is_empty());
        assert_eq!(check(&"// x\n".repeat(601))[0].rule, "file-size");
        let tests =
            format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(600), "// x\n".repeat(600));
        assert!(check(&tests).is_empty());
    }

    #[test]
    fn a_median_above_the_bound_is_found() {
        let texts = [P90_LINES, P90_LINES, 10].map(|lines| "// x\n".repeat(lines));
        let files: Vec<_> = texts.iter().map(|text| Rust::new("crates/x/src/a.rs", text)).collect();
        assert_eq!(check_all(&files).len(), 1, "the median");
        let texts = ["// x\n".repeat(MEDIAN_LINES), "// x\n".repeat(MEDIAN_LINES), "// x\n".repeat(10)];
        let files: Vec<_> = texts.iter().map(|text| Rust::new("crates/x/src/a.rs", text)).collect();
        assert!(check_all(&files).is_empty());
    }

    #[test]
    fn a_long_script_is_found() {
        let script = |path: &str, lines| SourceFile {
            path: path.into(),
            text: format!("#!/bin/sh\n{}", ":\n".repeat(lines)),
        };
        assert!(check_script(&script("dev", 599)).is_none());
        assert!(check_script(&script("dev", 600)).is_some());
        assert!(check_script(&SourceFile { path: "LICENSE".into(), text: "a\n".repeat(999) }).is_none());
    }
}
