//! `sbx info`: shows the version, the isolation backends and the limits of the service.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, InfoView, LimitsView, RangeView};

use crate::output;
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{Cell, plain, table};

pub async fn info(client: &Client, json: bool) -> Result<ExitCode> {
    let info = client.info().await?;
    if json {
        output::json(&info)?;
    } else {
        output::text(&render(&info, Paint::of(&std::io::stdout())))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(info: &InfoView, paint: Paint) -> String {
    let isolation = |isolation: sandboxd_client::Isolation| plain(isolation.name());
    let service =
        [plain(&info.version), isolation(info.default_isolation), isolation(info.minimum_isolation)];
    let backends: Vec<_> = info
        .backends
        .iter()
        .map(|backend| {
            [bold(backend.name.name()), yes_or_no(backend.network), yes_or_no(backend.memory_snapshots)]
        })
        .collect();
    let limits: Vec<_> =
        limits(&info.limits).into_iter().map(|(name, value)| [bold(name), plain(value)]).collect();
    [
        table(["VERSION", "DEFAULT ISOLATION", "MINIMUM ISOLATION"], &[service], paint),
        table(["BACKEND", "NETWORK", "MEMORY SNAPSHOTS"], &backends, paint),
        table(["LIMIT", "VALUE"], &limits, paint),
    ]
    .join("\n")
}

fn bold(text: &str) -> Cell {
    (text.to_owned(), Tone::Bold)
}

fn yes_or_no(value: bool) -> Cell {
    plain(if value { "yes" } else { "no" })
}

/// All limits with their names, in the order of the fields.
fn limits(limits: &LimitsView) -> [(&'static str, String); 12] {
    let cpu: Vec<String> = limits.cpu.iter().map(u32::to_string).collect();
    [
        ("readPerMinute", rate(limits.read_per_minute)),
        ("writePerMinute", rate(limits.write_per_minute)),
        ("createPerMinute", rate(limits.create_per_minute)),
        ("executePerMinute", rate(limits.execute_per_minute)),
        ("concurrentExecutions", limits.concurrent_executions.to_string()),
        ("executionQueue", limits.execution_queue.to_string()),
        ("maxOutputBytes", size(limits.max_output_bytes)),
        ("cpu", cpu.join(", ")),
        ("memoryMb", range(limits.memory_mb)),
        ("diskMb", range(limits.disk_mb)),
        ("timeoutMs", range(limits.timeout_ms)),
        ("idleTimeoutMs", range(limits.idle_timeout_ms)),
    ]
}

fn rate(limit: Option<u32>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

fn range(RangeView { min, max, default }: RangeView) -> String {
    format!("{min} to {max}, default {default}")
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
                "concurrentExecutions":8,"executionQueue":100,"maxOutputBytes":10000000,"cpu":[2,4,8],
                "memoryMb":{"min":2048,"max":16384,"default":4096},"diskMb":{"min":5120,"max":51200,"default":10240},
                "timeoutMs":{"min":1,"max":86400000,"default":300000},
                "idleTimeoutMs":{"min":0,"max":9007199254740991,"default":120000}}}"#;
        let info: InfoView = serde_json::from_str(json).unwrap();
        let text = render(&info, Paint::None);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines.len(), 2 + 1 + 3 + 1 + 13);
        assert_eq!(lines[..2], ["VERSION DEFAULT ISOLATION MINIMUM ISOLATION", "0.1.0 gvisor container"]);
        assert_eq!(lines[3..6], ["BACKEND NETWORK MEMORY SNAPSHOTS", "container yes no", "gvisor no yes"]);
        assert_eq!(lines[7], "LIMIT VALUE");
        for row in
            ["readPerMinute 600", "executePerMinute unlimited", "maxOutputBytes 10.0 MB", "cpu 2, 4, 8"]
        {
            assert!(lines.iter().any(|line| line == row), "{row}: {text}");
        }
        assert_eq!(lines[16], "memoryMb 2048 to 16384, default 4096");
    }
}
