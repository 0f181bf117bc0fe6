//! `sbx usage`: shows the usage and the quotas of the account.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, QuotaView, UsageView};

use crate::output::OutputFormat;
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{plain, table};
use crate::units::rounded_size_text;

/// Prints the quotas as a table.
pub async fn usage(client: &Client, format: OutputFormat) -> Result<ExitCode> {
    let usage = client.usage().await?;
    format.print(&usage, |paint| render(&usage, paint))
}

fn render(usage: &UsageView, paint: Paint) -> String {
    let rows = usage.quotas().into_iter().map(|(name, quota)| {
        let is_used_up = quota.allowed.is_some_and(|allowed| quota.used >= allowed);
        let used = (amount(name, quota.used), if is_used_up { Tone::Waiting } else { Tone::Plain });
        // The value has the unit.
        let shown = name.strip_suffix("Mb").unwrap_or(name);
        [(shown.to_owned(), Tone::Bold), used, plain(allowed(name, quota))]
    });
    table(["QUOTA", "USED", "ALLOWED"], rows, paint)
}

fn allowed(name: &str, quota: QuotaView) -> String {
    quota.allowed.map_or_else(|| "unlimited".to_owned(), |allowed| amount(name, allowed))
}

/// Formats bytes and MB with a unit. Other values are counts.
fn amount(name: &str, value: u64) -> String {
    match name {
        name if name.ends_with("Bytes") => size(value),
        name if name.ends_with("Mb") => rounded_size_text(value),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quota_has_a_row() {
        let json = r#"{"account":"default",
            "sandboxes":{"used":3,"allowed":null},"vcpus":{"used":4,"allowed":4},
            "memoryMb":{"used":8192,"allowed":null},"diskMb":{"used":30725,"allowed":122885},
            "snapshots":{"used":2,"allowed":1000},"snapshotBytes":{"used":5000000,"allowed":null},"templates":{"used":1,"allowed":1000},
            "executionLogBytes":{"used":0,"allowed":null},"idempotencyBytes":{"used":1200000,"allowed":268435456},
            "eventBytes":{"used":5120,"allowed":268435456},"postedEventBytes":{"used":0,"allowed":268435456},
            "connections":{"used":1,"allowed":5000},"streams":{"used":0,"allowed":2000}}"#;
        let usage: UsageView = serde_json::from_str(json).unwrap();
        let text = render(&usage, Paint::None);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 14);
        assert_eq!(lines[0], ["QUOTA", "USED", "ALLOWED"]);
        assert_eq!(lines[1], ["sandboxes", "3", "unlimited"]);
        assert_eq!(lines[2], ["vcpus", "4", "4"]);
        assert_eq!(lines[3], ["memory", "8g", "unlimited"]);
        assert_eq!(lines[4], ["disk", "30g", "120g"]);
        assert_eq!(lines[6], ["snapshotBytes", "5.0", "MB", "unlimited"]);
        assert_eq!(lines[9], ["idempotencyBytes", "1.2", "MB", "268.4", "MB"]);
    }
}
