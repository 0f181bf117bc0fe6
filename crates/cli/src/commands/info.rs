//! `sbx info`: shows the version, the isolation backends and the limits of the service.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, InfoView, LimitsView, RangeView};

use crate::output::OutputFormat;
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{Cell, plain, table};
use crate::units::{size_text, time_text};

/// A longer time is no limit.
const CENTURY_MS: u64 = 100 * 365 * 24 * 3_600_000;

/// Prints what the service offers as tables.
pub async fn info(client: &Client, format: OutputFormat) -> Result<ExitCode> {
    let info = client.info().await?;
    format.print(&info, |paint| render(&info, paint))
}

fn render(info: &InfoView, paint: Paint) -> String {
    let isolation = |isolation: sandboxd_client::Isolation| plain(isolation.name());
    let service =
        [plain(&info.version), isolation(info.default_isolation), isolation(info.minimum_isolation)];
    let backends = info.backends.iter().map(|backend| {
        [bold(backend.name.name()), yes_or_no(backend.network), yes_or_no(backend.memory_snapshots)]
    });
    let limits = limits(&info.limits).into_iter().map(|(name, value)| [bold(name), plain(value)]);
    [
        table(["VERSION", "DEFAULT ISOLATION", "MINIMUM ISOLATION"], [service], paint),
        table(["BACKEND", "NETWORK", "MEMORY SNAPSHOTS"], backends, paint),
        table(["LIMIT", "VALUE"], limits, paint),
    ]
    .join("\n")
}

fn bold(text: &str) -> Cell {
    (text.to_owned(), Tone::Bold)
}

fn yes_or_no(value: bool) -> Cell {
    plain(if value { "yes" } else { "no" })
}

/// All limits with their names, in the order of the fields. Names lose their units, which the values have.
fn limits(limits: &LimitsView) -> [(&'static str, String); 14] {
    let cpu: Vec<String> = limits.cpu.iter().map(u32::to_string).collect();
    [
        ("readPerMinute", rate(limits.read_per_minute)),
        ("writePerMinute", rate(limits.write_per_minute)),
        ("createPerMinute", rate(limits.create_per_minute)),
        ("executePerMinute", rate(limits.execute_per_minute)),
        ("operatePerMinute", rate(limits.operate_per_minute)),
        ("concurrentExecutions", limits.concurrent_executions.to_string()),
        ("detachedExecutions", limits.detached_executions.to_string()),
        ("executionQueue", limits.execution_queue.to_string()),
        ("maxOutputBytes", size(limits.max_output_bytes)),
        ("cpu", cpu.join(", ")),
        ("memory", range(limits.memory_mb, size_text)),
        ("disk", range(limits.disk_mb, size_text)),
        ("timeout", range(limits.timeout_ms, time)),
        ("idleTimeout", range(limits.idle_timeout_ms, time)),
    ]
}

fn rate(limit: Option<u32>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

fn range(RangeView { min, max, default }: RangeView, text: impl Fn(u64) -> String) -> String {
    format!("{} to {}, default {}", text(min), text(max), text(default))
}

fn time(ms: u64) -> String {
    if ms > CENTURY_MS { "any".to_owned() } else { time_text(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_and_each_backend_and_limit_have_a_row() {
        let json = r#"{"version":"0.1.0","defaultIsolation":"gvisor","minimumIsolation":"container",
            "backends":[{"name":"container","network":true,"memorySnapshots":false},
                {"name":"gvisor","network":false,"memorySnapshots":true}],
            "limits":{"readPerMinute":600,"writePerMinute":300,"createPerMinute":60,"executePerMinute":null,
                "operatePerMinute":600,"concurrentExecutions":8,"detachedExecutions":32,"executionQueue":100,"maxOutputBytes":10000000,"cpu":[2,4,8],
                "memoryMb":{"min":2048,"max":16384,"default":4096},"diskMb":{"min":5120,"max":51200,"default":10240},
                "timeoutMs":{"min":1,"max":86400000,"default":300000},
                "idleTimeoutMs":{"min":0,"max":9007199254740991,"default":120000}}}"#;
        let info: InfoView = serde_json::from_str(json).unwrap();
        let text = render(&info, Paint::None);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines.len(), 2 + 1 + 3 + 1 + 15);
        assert_eq!(lines[..2], ["VERSION DEFAULT ISOLATION MINIMUM ISOLATION", "0.1.0 gvisor container"]);
        assert_eq!(lines[3..6], ["BACKEND NETWORK MEMORY SNAPSHOTS", "container yes no", "gvisor no yes"]);
        assert_eq!(lines[7], "LIMIT VALUE");
        for row in ["readPerMinute 600", "executePerMinute unlimited", "detachedExecutions 32", "cpu 2, 4, 8"]
        {
            assert!(lines.iter().any(|line| line == row), "{row}: {text}");
        }
        assert_eq!(lines[18], "memory 2g to 16g, default 4g");
        assert_eq!(lines[20..], ["timeout 1ms to 24h, default 5m", "idleTimeout 0s to any, default 2m"]);
    }
}
