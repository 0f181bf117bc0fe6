//! The bounds on the figures. Called by `metrics` for `--check`.

use super::figures::Figures;
use crate::tidy::type_names::SAME_TYPE_NAME;

/// Percentile and bound of the lengths of files.
const FILE_LINES: [(&str, usize, usize); 3] = [("p50", 50, 100), ("p90", 90, 240), ("max", 100, 450)];
/// The least lines of tests for 100 lines of code.
const TESTS_PER_100: usize = 87;
/// The most undocumented items of 100 public ones.
const UNDOCUMENTED_PER_100: usize = 15;
/// The most files directly in the `src` of a crate.
const TOP_FILES: usize = 20;

/// A line for each exceeded bound.
pub fn exceeded(figures: &Figures) -> Vec<String> {
    let mut found = Vec::new();
    for (name, percent, bound) in FILE_LINES {
        let lines = figures.file_lines(percent);
        if lines > bound {
            found.push(format!(
                "{name} of the lengths of files: {lines}, at most {bound}{}",
                longest(figures, percent)
            ));
        }
    }
    found.extend(figures.long_functions.iter().cloned());
    let total = figures.total();
    if total.tests * 100 < total.code * TESTS_PER_100 {
        let (tests, code) = (total.tests, total.code);
        found.push(format!(
            "{tests} lines of tests for {code} lines of code, at least {TESTS_PER_100} for 100"
        ));
    }
    if total.undocumented_items * 100 > total.items * UNDOCUMENTED_PER_100 {
        let (undocumented, items) = (total.undocumented_items, total.items);
        found.push(format!(
            "{undocumented} of {items} public items are undocumented, at most {UNDOCUMENTED_PER_100} of 100"
        ));
    }
    for (name, figures) in figures.crates.iter().filter(|(_, figures)| figures.top_files > TOP_FILES) {
        found.push(format!("{name}: {} files directly in src, at most {TOP_FILES}", figures.top_files));
    }
    for (name, places) in figures.repeated_types(SAME_TYPE_NAME) {
        let count = places.len();
        found
            .push(format!("{count} types are called {name}, at most {SAME_TYPE_NAME}: {}", places.join(" ")));
    }
    found
}

/// The path of the longest file, if the percentile is its length.
fn longest(figures: &Figures, percent: usize) -> String {
    let last = figures.files.last().filter(|_| percent == 100);
    last.map(|(_, path)| format!(" ({path})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::figures::CrateFigures;

    /// Figures that meet each bound exactly.
    fn at_the_bounds() -> Figures {
        let x = CrateFigures {
            code: 100,
            tests: 87,
            items: 100,
            undocumented_items: 15,
            top_files: 20,
            ..CrateFigures::default()
        };
        let lengths = [100, 100, 100, 100, 100, 100, 100, 240, 240, 240, 450];
        Figures {
            crates: [("x".to_owned(), x)].into(),
            files: lengths.into_iter().map(|lines| (lines, "crates/x/src/a.rs".to_owned())).collect(),
            long_functions: Vec::new(),
            type_names: [("A".to_owned(), vec!["a.rs:1".to_owned(); 3])].into(),
        }
    }

    /// The exceeded bounds after a change of figures that meet them.
    fn after(change: impl Fn(&mut Figures)) -> Vec<String> {
        let mut figures = at_the_bounds();
        change(&mut figures);
        exceeded(&figures)
    }

    fn after_in_crate(change: impl Fn(&mut CrateFigures)) -> Vec<String> {
        after(|figures| figures.crates.values_mut().for_each(&change))
    }

    #[test]
    fn figures_at_their_bounds_pass() {
        assert!(after(|_| {}).is_empty(), "{:?}", after(|_| {}));
    }

    #[test]
    fn files_above_a_bound_are_found() {
        let lengths = |percent: usize| {
            after(|figures| {
                let count = figures.files.len();
                figures.files[(count * percent / 100).min(count - 1)].0 += 1;
            })
        };
        assert_eq!(lengths(50), ["p50 of the lengths of files: 101, at most 100"]);
        assert_eq!(lengths(90), ["p90 of the lengths of files: 241, at most 240"]);
        let longest = "max of the lengths of files: 451, at most 450 (crates/x/src/a.rs)";
        assert_eq!(lengths(100), [longest]);
    }

    #[test]
    fn crates_above_a_bound_are_found() {
        let tests = after_in_crate(|x| x.tests = 86);
        assert_eq!(tests, ["86 lines of tests for 100 lines of code, at least 87 for 100"]);
        let documentation = after_in_crate(|x| x.undocumented_items = 16);
        assert_eq!(documentation, ["16 of 100 public items are undocumented, at most 15 of 100"]);
        let top = after_in_crate(|x| x.top_files = 21);
        assert_eq!(top, ["x: 21 files directly in src, at most 20"]);
    }

    #[test]
    fn repeated_names_and_long_functions_are_listed() {
        let types = after(|figures| {
            figures.type_names.insert("B".to_owned(), vec!["b.rs:2".to_owned(); 4]);
        });
        assert_eq!(types, ["4 types are called B, at most 3: b.rs:2 b.rs:2 b.rs:2 b.rs:2"]);
        let long = after(|figures| figures.long_functions.push("a.rs:1: fn long has 71 lines".to_owned()));
        assert_eq!(long, ["a.rs:1: fn long has 71 lines"]);
    }
}
