//! Compares the rows of two commits. `./dev bench --compare` runs their bench programs in alternating blocks, whose rows are in
//! `this-N.json` and `other-N.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::report::aligned;
use crate::samples::median;

/// The hidden subcommands.
pub const BLOCKS: &str = "compare-blocks";
pub const ROOT_FS: &str = "root-fs";

/// The fields of a row that have its figure.
const FIGURES: [&str; 5] = ["p50_ms", "per_s", "mb_per_s", "mb", "cpu_percent"];
const P99: &str = "p99_ms";

/// The values of each block, by bench, subject and field.
type Values = BTreeMap<(String, String, &'static str), Vec<f64>>;

/// The medians of the blocks, and this commit as a multiple of the other one. Rows that only one of them has are left out.
pub fn table(dir: &Path) -> Result<String> {
    let (this, other) = (read(dir, "this")?, read(dir, "other")?);
    let mut lines = vec![
        ["bench", "subject", "figure", "this", "other", "ratio", "blocks", "p99 this", "p99 other", "ratio"]
            .map(str::to_owned),
        ["---", "---", "---", "---:", "---:", "---:", "---:", "---:", "---:", "---:"].map(str::to_owned),
    ];
    for ((bench, subject, field), ours) in &this {
        let key = |field: &'static str| (bench.clone(), subject.clone(), field);
        let Some(theirs) = other.get(&key(field)).filter(|_| *field != P99) else { continue };
        let [p50, than, ratio] = compared(ours, theirs);
        let p99 = this.get(&key(P99)).zip(other.get(&key(P99)));
        let [slow, than_slow, slow_ratio] =
            p99.map_or_else(Default::default, |(one, two)| compared(one, two));
        let [bench, subject, field] = [bench.as_str(), subject.as_str(), *field].map(str::to_owned);
        lines.push([
            bench,
            subject,
            field,
            p50,
            than,
            ratio,
            range(ours, theirs),
            slow,
            than_slow,
            slow_ratio,
        ]);
    }
    ensure!(lines.len() > 2, "no row in {} has both sides", dir.display());
    Ok(aligned(&lines))
}

fn compared(this: &[f64], other: &[f64]) -> [String; 3] {
    let (this, other) = (median(this), median(other));
    [format!("{this:.2}"), format!("{other:.2}"), ratio(this, other)]
}

fn ratio(this: f64, other: f64) -> String {
    if other > 0.0 { format!("{:.3}", this / other) } else { String::new() }
}

/// The smallest and the largest ratio of a block: the ratio of the medians means little if it is not far from 1 compared with these.
fn range(this: &[f64], other: &[f64]) -> String {
    let mut ratios: Vec<f64> =
        this.iter().zip(other).filter(|(_, other)| **other > 0.0).map(|(this, other)| this / other).collect();
    ratios.sort_by(f64::total_cmp);
    match (ratios.first(), ratios.last()) {
        (Some(least), Some(most)) => format!("{least:.3} to {most:.3}"),
        _ => String::new(),
    }
}

fn read(dir: &Path, side: &str) -> Result<Values> {
    let mut values = Values::new();
    for block in 1.. {
        let path = dir.join(format!("{side}-{block}.json"));
        let Ok(text) = fs::read_to_string(&path) else {
            ensure!(block > 1, "there is no {}", path.display());
            break;
        };
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).with_context(|| path.display().to_string())?;
            let word = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
            for field in FIGURES.into_iter().chain([P99]) {
                if let Some(value) = row[field].as_f64() {
                    values.entry((word("bench"), word("subject"), field)).or_default().push(value);
                }
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_both_sides_are_compared_by_the_medians_of_the_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let block = |side: &str, number: usize, p50: f64, more: &str| {
            let row = format!(
                r#"{{"bench":"execute","subject":"sandboxd","p50_ms":{p50},"p99_ms":{},"n":500}}"#,
                2.0 * p50
            );
            fs::write(dir.path().join(format!("{side}-{number}.json")), format!("{row}\n{more}")).unwrap();
        };
        for (number, (this, other)) in (1..).zip([(1.0, 2.0), (9.0, 3.0), (1.5, 2.5)]) {
            block("this", number, this, r#"{"bench":"churn","subject":"sandboxd","per_s":30.0,"n":300}"#);
            block("other", number, other, "");
        }
        let text = table(dir.path()).unwrap();
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows.len(), 3, "churn has one side: {text}");
        assert_eq!(
            rows[2][1..11],
            [
                "execute",
                "sandboxd",
                "p50_ms",
                "1.50",
                "2.50",
                "0.600",
                "0.500 to 3.000",
                "3.00",
                "5.00",
                "0.600"
            ]
        );
        assert!(table(&dir.path().join("none")).unwrap_err().to_string().contains("this-1.json"));
    }
}
