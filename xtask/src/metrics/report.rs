//! The figures as text. Called by `metrics`.

use super::figures::{CrateFigures, Figures};
use crate::tidy::scope::{self, CrateRole};
use crate::tidy::sizes::FUNCTION_LINES;
use crate::tidy::type_names::SAME_TYPE_NAME;

const HEADER: &str = "\
crate             code   tests   t/c  items undocumented  fields undocumented  top files  bool functions";

/// The table of all crates, most code first, the total, and the figures without a crate.
pub fn table(figures: &Figures) -> String {
    let (benchmarks, mut counted): (Vec<_>, Vec<_>) =
        figures.crates.iter().partition(|(name, _)| scope::role(name) == CrateRole::Benchmarks);
    counted.sort_by_key(|(name, figures)| (usize::MAX - figures.code, name.as_str()));
    let mut lines = vec![HEADER.to_owned()];
    lines.extend(counted.into_iter().map(|(name, figures)| row(name, figures)));
    lines.push(row("total", &figures.total()));
    lines.extend(
        benchmarks.into_iter().map(|(name, figures)| format!("{} (in no total)", row(name, figures))),
    );
    let [p50, p90, max] = [50, 90, 100].map(|percent| figures.file_lines(percent));
    lines.push(format!("\nlengths of {} files: p50 {p50}, p90 {p90}, max {max}", figures.files.len()));
    lines.push(format!("functions above {FUNCTION_LINES} lines: {}", figures.long_functions.len()));
    let names = figures.repeated_types(SAME_TYPE_NAME);
    let words: Vec<String> = names.iter().map(|(name, places)| format!("{name} {}", places.len())).collect();
    let words = words.join(", ");
    lines.push(format!("type names with more than {SAME_TYPE_NAME} definitions: {} ({words})", names.len()));
    lines.join("\n")
}

fn row(name: &str, figures: &CrateFigures) -> String {
    let tests = match figures.code {
        0 => "-".to_owned(),
        code => format!("{:.2}", ratio(figures.tests, code)),
    };
    let items = 100.0 * ratio(figures.undocumented_items, figures.items);
    let fields = 100.0 * ratio(figures.undocumented_fields, figures.fields);
    format!(
        "{name:<14} {:>7} {:>7} {tests:>5} {:>6} {items:>10.1} % {:>7} {fields:>10.1} % {:>10} {:>15}",
        figures.code, figures.tests, figures.items, figures.fields, figures.top_files, figures.bool_functions
    )
}

/// `part / whole`, and 0 for a part of nothing.
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_crate_and_the_total() {
        let crate_figures = |code, tests| CrateFigures {
            code,
            tests,
            items: 8,
            undocumented_items: 1,
            ..CrateFigures::default()
        };
        let figures = Figures {
            crates: [
                ("bench".to_owned(), crate_figures(50, 0)),
                ("e2e".to_owned(), crate_figures(0, 90)),
                ("x".to_owned(), crate_figures(100, 10)),
                ("y".to_owned(), crate_figures(200, 30)),
            ]
            .into(),
            files: vec![(10, "crates/x/src/a.rs".to_owned())],
            type_names: [("A".to_owned(), vec![String::new(); 4])].into(),
            ..Figures::default()
        };
        let table = table(&figures);
        let starts: Vec<String> =
            table.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")).collect();
        let rows = ["y 200 30 0.15", "x 100 10 0.10", "e2e 0 90 -", "total 300 130 0.43", "bench 50 0 0.00"];
        assert_eq!(starts[1..6], rows);
        assert!(table.lines().nth(1).unwrap().contains(" 12.5 %"), "{table}");
        assert!(table.contains("lengths of 1 files: p50 10, p90 10, max 10"), "{table}");
        assert!(table.ends_with("definitions: 1 (A 4)"), "{table}");
    }
}
