//! Saves the figures as JSON and compares the present ones with them. Called by `metrics` for `--save` and `--compare`. A file without
//! the figures of crates is refused; a figure that it lacks counts as 0.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::figures::{CrateFigures, Figures};
use crate::tidy::type_names::SAME_TYPE_NAME;

const HEADER: &str = "\
crate          code before   after   change  tests before   after   change  undocumented items  bool functions";

/// What [`changes`] reads later.
pub fn to_json(figures: &Figures) -> Value {
    let of = |figures: &CrateFigures| figures.named().into_iter().collect::<Value>();
    let crates = figures.crates.iter().map(|(name, figures)| (name.clone(), of(figures))).collect::<Value>();
    json!({
        "crates": crates,
        "total": of(&figures.total()),
        "file_lines": {
            "p50": figures.file_lines(50),
            "p90": figures.file_lines(90),
            "max": figures.file_lines(100),
        },
        "repeated_types": figures.repeated_types(SAME_TYPE_NAME).len(),
    })
}

/// A table of the changes of each crate, crates that are new or gone included, and of the figures without a crate.
pub fn changes(before: &Value, figures: &Figures) -> Result<String> {
    let saved =
        before["crates"].as_object().context("these are no figures of `cargo xtask metrics --save`")?;
    let after = to_json(figures);
    let mut lines = vec![HEADER.to_owned()];
    let names: BTreeSet<&String> = saved.keys().chain(figures.crates.keys()).collect();
    lines.extend(names.into_iter().map(|name| row(name, &before["crates"][name], &after["crates"][name])));
    lines.push(row("total", &before["total"], &after["total"]));
    let lengths: Vec<String> = ["p50", "p90", "max"]
        .map(|name| format!("{name} {}", arrow(&before["file_lines"], &after["file_lines"], name)))
        .into();
    lines.push(format!("\nlengths of files: {}", lengths.join(", ")));
    let types = arrow(before, &after, "repeated_types");
    lines.push(format!("type names with more than {SAME_TYPE_NAME} definitions: {types}"));
    Ok(lines.join("\n"))
}

fn row(name: &str, before: &Value, after: &Value) -> String {
    let pair = |figure: &str| (count(before, figure), count(after, figure));
    let ((code, code_now), (tests, tests_now)) = (pair("code"), pair("tests"));
    let (code_change, tests_change) = (change(code, code_now), change(tests, tests_now));
    let undocumented = arrow(before, after, "undocumented_items");
    let bools = arrow(before, after, "bool_functions");
    format!(
        "{name:<14} {code:>11} {code_now:>7} {code_change:>8} {tests:>13} {tests_now:>7} {tests_change:>8} \
         {undocumented:>19} {bools:>15}"
    )
}

fn arrow(before: &Value, after: &Value, figure: &str) -> String {
    format!("{} -> {}", count(before, figure), count(after, figure))
}

fn count(figures: &Value, name: &str) -> u64 {
    figures[name].as_u64().unwrap_or_default()
}

/// The change in percent.
fn change(before: u64, after: u64) -> String {
    match (before, after) {
        (0, 0) => "-".to_owned(),
        (0, _) => "new".to_owned(),
        _ => format!("{:+.1} %", 100.0 * (after as f64 / before as f64 - 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(crates: &[(&str, usize)]) -> Figures {
        let of = |code| CrateFigures { code, tests: 10, bool_functions: 2, ..CrateFigures::default() };
        Figures {
            crates: crates.iter().map(|(name, code)| ((*name).to_owned(), of(*code))).collect(),
            files: vec![(90, "crates/x/src/a.rs".to_owned())],
            ..Figures::default()
        }
    }

    #[test]
    fn the_change_of_each_crate_is_shown_in_percent() {
        let before = to_json(&figures(&[("gone", 40), ("x", 200)]));
        let before = serde_json::from_str(&before.to_string()).unwrap();
        let table = changes(&before, &figures(&[("added", 30), ("x", 190)])).unwrap();
        let rows: Vec<String> =
            table.lines().map(|line| line.split_whitespace().take(5).collect::<Vec<_>>().join(" ")).collect();
        let expected = ["added 0 30 new 0", "gone 40 0 -100.0 %", "x 200 190 -5.0 %", "total 240 220 -8.3 %"];
        assert_eq!(rows[1..5], expected);
        assert!(table.contains("p50 90 -> 90, p90 90 -> 90, max 90 -> 90"), "{table}");
        assert!(table.lines().nth(3).unwrap().ends_with("2 -> 2"), "{table}");
    }

    #[test]
    fn another_file_is_refused() {
        assert!(changes(&json!({"crates": 1}), &figures(&[])).is_err());
        assert!(changes(&json!([]), &figures(&[])).is_err());
    }
}
