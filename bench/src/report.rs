//! The results, as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::samples::Samples;

/// The subject that all others are compared with.
pub const OURS: &str = "sandboxd";

/// Subjects whose figures are comparable with ours. The other subjects are additional figures of sandboxd.
const PEERS: [&str; 11] =
    ["bash", "bash-tokio", "bwrap", "runc", "docker", "axum", "engine", "hyper", "inside", "fetch", "httpx"];

/// One line of the result.
#[derive(Debug, Clone)]
pub struct Row {
    pub bench: &'static str,
    pub subject: &'static str,
    pub figure: Figure,
    pub n: usize,
    /// Problems besides the figure: failed operations, leaked resources.
    pub problems: Vec<String>,
    /// Notes for the reader: how the figure is composed.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    Times { p50_ms: f64, p99_ms: f64 },
    PerSecond(f64),
    MegabytesPerSecond(f64),
    Megabytes(f64),
    CpuPercent(f64),
}

impl Figure {
    /// The one number to compare.
    pub fn main(self) -> f64 {
        match self {
            Self::Times { p50_ms, .. } => p50_ms,
            Self::PerSecond(x) | Self::MegabytesPerSecond(x) | Self::Megabytes(x) | Self::CpuPercent(x) => x,
        }
    }
}

impl Row {
    pub fn new(bench: &'static str, subject: &'static str, figure: Figure, n: usize) -> Self {
        Self { bench, subject, figure, n, problems: Vec::new(), notes: Vec::new() }
    }

    pub fn times(bench: &'static str, subject: &'static str, samples: &Samples) -> Self {
        let figure = Figure::Times { p50_ms: samples.percentile(50), p99_ms: samples.percentile(99) };
        Self::new(bench, subject, figure, samples.len())
    }

    pub fn problem(mut self, problem: impl Into<String>) -> Self {
        self.problems.push(problem.into());
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

/// The row of a bench and a subject.
pub fn find<'a>(rows: &'a [Row], bench: &str, subject: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.bench == bench && row.subject == subject)
}

pub fn json_lines(rows: &[Row]) -> String {
    rows.iter().fold(String::new(), |mut text, row| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", json_row(row));
        text
    })
}

fn json_row(row: &Row) -> Value {
    let (bench, subject, n) = (row.bench, row.subject, row.n);
    match row.figure {
        Figure::Times { p50_ms, p99_ms } => {
            json!({ "bench": bench, "subject": subject, "p50_ms": round(p50_ms), "p99_ms": round(p99_ms), "n": n })
        }
        Figure::PerSecond(x) => json!({ "bench": bench, "subject": subject, "per_s": round(x), "n": n }),
        Figure::MegabytesPerSecond(x) => {
            json!({ "bench": bench, "subject": subject, "mb_per_s": round(x), "n": n })
        }
        Figure::Megabytes(x) => json!({ "bench": bench, "subject": subject, "mb": round(x), "n": n }),
        Figure::CpuPercent(x) => {
            json!({ "bench": bench, "subject": subject, "cpu_percent": round(x), "n": n })
        }
    }
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![
        ["bench", "subject", "p50", "p99", "n", "to sandboxd"].map(str::to_owned),
        ["---", "---", "---:", "---:", "---:", "---:"].map(str::to_owned),
    ];
    lines.extend(rows.iter().map(|row| line(row, rows)));
    let mut text = aligned(&lines);
    for row in rows {
        for note in
            row.problems.iter().map(|problem| format!("PROBLEM: {problem}")).chain(row.notes.iter().cloned())
        {
            let _ = writeln!(text, "{} {}: {note}", row.bench, row.subject);
        }
    }
    text
}

fn line(row: &Row, rows: &[Row]) -> [String; 6] {
    let (median, p99) = match row.figure {
        Figure::Times { p50_ms, p99_ms } => (format!("{p50_ms:.2} ms"), format!("{p99_ms:.2} ms")),
        Figure::PerSecond(x) => (format!("{x:.1} /s"), String::new()),
        Figure::MegabytesPerSecond(x) => (format!("{x:.0} MB/s"), String::new()),
        Figure::Megabytes(x) => (format!("{x:.2} MB"), String::new()),
        Figure::CpuPercent(x) => (format!("{x:.2} % CPU"), String::new()),
    };
    let ratio = find(rows, ours(row.bench), OURS)
        .filter(|ours| PEERS.contains(&row.subject) && ours.figure.main() > 0.0)
        .map_or_else(String::new, |ours| format!("{:.2} x", row.figure.main() / ours.figure.main()));
    [row.bench.to_owned(), row.subject.to_owned(), median, p99, row.n.to_string(), ratio]
}

/// The bench of sandboxd that a peer's row of `bench` is compared with.
fn ours(bench: &str) -> &str {
    if bench == "create" { "create-cold" } else { bench }
}

/// A Markdown table with aligned columns.
pub fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_shape_that_others_read() {
        let times = Row::new("execute", "sandboxd", Figure::Times { p50_ms: 1.900_04, p99_ms: 3.1 }, 500);
        let rate = Row::new("churn", "sandboxd", Figure::PerSecond(25.0), 2000);
        let text = json_lines(&[times, rate]);
        let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            rows[0],
            json!({ "bench": "execute", "subject": "sandboxd", "p50_ms": 1.9, "p99_ms": 3.1, "n": 500 })
        );
        assert_eq!(rows[1], json!({ "bench": "churn", "subject": "sandboxd", "per_s": 25.0, "n": 2000 }));
    }

    #[test]
    fn peers_are_shown_as_multiples_of_ours() {
        let times =
            |bench, subject, p50_ms| Row::new(bench, subject, Figure::Times { p50_ms, p99_ms: 9.0 }, 1);
        let text = table(&[times("create-cold", "sandboxd", 50.0), times("create", "docker", 200.0)]);
        assert!(text.contains("4.00 x"), "{text}");
    }
}
