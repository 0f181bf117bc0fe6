//! `sandboxd doctor`: checks whether this host can run sandboxes, and says how to fix what is missing.
//!
//! Leaves nothing behind. Exits with 1 if sandboxes cannot run here.

mod checks;
mod network;
mod runc;
mod trial;

use std::process::ExitCode;

use crate::config::Config;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Good,
    /// Sandboxes run, with something missing.
    Fair,
    /// Sandboxes cannot run.
    Bad,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub what: &'static str,
    pub verdict: Verdict,
    pub found: String,
    /// What to do; empty if nothing has to be done.
    pub remedy: String,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Good, found: found.into(), remedy: String::new() }
    }

    fn fair(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Fair, found: found.into(), remedy: remedy.into() }
    }

    fn bad(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Bad, found: found.into(), remedy: remedy.into() }
    }
}

/// Prints the report.
pub fn run(config: &Config) -> ExitCode {
    let mut findings = checks::all(config);
    findings.extend(network::all(config));
    // After a failed check the trial would only fail again, with a less clear message.
    if findings.iter().all(|finding| finding.verdict != Verdict::Bad) {
        findings.push(trial::file_systems(config));
    }
    let works = findings.iter().all(|finding| finding.verdict != Verdict::Bad);
    let verdict = if works { "sandboxes can run here" } else { "sandboxes cannot run here yet" };
    // The exit code says it, too.
    let _ = crate::stdout::print(&format!("{}{verdict}\n", report(&findings)));
    if works { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.verdict {
            Verdict::Good => "ok  ",
            Verdict::Fair => "note",
            Verdict::Bad => "FAIL",
        };
        text.push_str(&format!("{mark}  {:<16} {}\n", finding.what, finding.found));
        if !finding.remedy.is_empty() {
            text.push_str(&format!("      {:<16} -> {}\n", "", finding.remedy));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_remedy_only_where_there_is_one() {
        let findings = [Finding::good("kernel", "6.18"), Finding::bad("runtime", "none", "install runc")];
        assert_eq!(
            report(&findings),
            "ok    kernel           6.18\nFAIL  runtime          none\n                       -> install runc\n"
        );
    }
}
