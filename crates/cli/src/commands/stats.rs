//! `sbx stats`: shows the CPU, memory and disk that sandboxes use, until Ctrl-C. It reads what the service measures about every 5 s, and
//! runs nothing in the sandboxes, so that it does not keep them awake.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt, stream};
use sandboxd_client::{Client, Code, ResourceSample, Sandbox, SandboxState, Timestamp};
use serde::Serialize;

use super::ls::tone;
use super::merged_lists::merge;
use super::named_sandbox::find_sandbox;
use crate::cli::StatsArguments;
use crate::interrupt::Interrupt;
use crate::output::{CLEAR, OutputFormat};
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{Cell, plain, table};

/// How often the service measures.
pub const EVERY: Duration = Duration::from_secs(5);
/// Samples that are older are not shown. It is long for clocks that differ.
const RECENT: Duration = Duration::from_secs(120);
/// Requests at a time.
const PARALLEL: usize = 8;
/// More sandboxes would need more requests per minute than a key usually has.
const MOST: usize = 100;

/// A sandbox, and what it used last.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SandboxStats {
    id: String,
    name: Option<String>,
    state: SandboxState,
    /// `null` for a paused sandbox, and in its first seconds.
    usage: Option<ResourceSample>,
}

/// Prints a table at each refresh until a signal.
pub async fn stats(client: &Client, format: OutputFormat, arguments: &StatsArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let is_terminal = std::io::stdout().is_terminal();
    let streams = is_terminal && !arguments.no_stream;
    let mut refreshes = arguments.refreshes.or((!streams).then_some(1));
    while refreshes != Some(0) {
        let found = tokio::select! {
            found = measure(client, &arguments.ids) => found?,
            _ = interrupt.first() => return Ok(ExitCode::SUCCESS),
        };
        let clear = if streams { CLEAR } else { "" };
        format.print(&found, |paint| format!("{clear}{}", render(&found, paint)))?;
        refreshes = refreshes.map(|left| left - 1);
        if refreshes == Some(0) {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(arguments.every) => {}
            _ = interrupt.first() => return Ok(ExitCode::SUCCESS),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The named sandboxes in the order of their names, or all live ones.
async fn measure(client: &Client, ids: &[String]) -> Result<Vec<SandboxStats>> {
    let sandboxes: Vec<(Option<String>, SandboxState, Sandbox)> = if ids.is_empty() {
        let states = [SandboxState::Running, SandboxState::Paused];
        let items = merge(states.map(|state| client.list().details().state(state)), MOST, |_| true).await?;
        let of = |id: &str| client.sandbox(id);
        let all = items.into_iter().map(|item| Ok((item.name, item.state, of(item.id.as_str())?)));
        all.take(MOST).collect::<Result<_>>()?
    } else {
        let named = stream::iter(ids).map(|id| async move {
            let sandbox = find_sandbox(client, id).await?;
            let view = sandbox.refresh().await?;
            anyhow::Ok((view.name, view.state, sandbox))
        });
        named.buffered(PARALLEL).try_collect().await?
    };
    let measured = stream::iter(sandboxes).map(|(name, state, sandbox)| async move {
        let usage = if state == SandboxState::Running { newest(&sandbox).await? } else { None };
        Ok(SandboxStats { id: sandbox.id().to_string(), name, state, usage })
    });
    measured.buffered(PARALLEL).try_collect().await
}

/// The newest sample. A sandbox that has just ended has none.
async fn newest(sandbox: &Sandbox) -> Result<Option<ResourceSample>> {
    let recent = u64::try_from(RECENT.as_millis()).unwrap_or(u64::MAX);
    let start = Timestamp(base::unix_ms().saturating_sub(recent));
    match sandbox.metrics(Some(start), None).await {
        Ok(samples) => Ok(samples.into_iter().next_back()),
        Err(error) if error.code() == Code::SandboxNotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn render(all: &[SandboxStats], paint: Paint) -> String {
    let mut rows: Vec<[Cell; 6]> = all.iter().map(row).collect();
    if all.len() > 1 {
        rows.push(total(all.iter().filter_map(|stats| stats.usage.as_ref())));
    }
    table(["ID", "NAME", "STATE", "CPU", "MEMORY", "DISK"], rows, paint)
}

fn row(stats: &SandboxStats) -> [Cell; 6] {
    let of = |text: fn(&ResourceSample) -> String| {
        plain(stats.usage.as_ref().map_or_else(|| "-".to_owned(), text))
    };
    [
        (stats.id.clone(), Tone::Bold),
        plain(stats.name.as_deref().unwrap_or("-")),
        (stats.state.to_string(), tone(stats.state)),
        of(|sample| percent(cpu(sample))),
        of(|sample| share(sample.memory_used_bytes, sample.memory_total_bytes)),
        of(|sample| share(sample.disk_used_bytes, sample.disk_total_bytes)),
    ]
}

fn total<'a>(samples: impl Iterator<Item = &'a ResourceSample>) -> [Cell; 6] {
    let (mut used_cpu, mut memory, mut disk) = (0.0, 0, 0);
    for sample in samples {
        used_cpu += cpu(sample);
        memory += sample.memory_used_bytes;
        disk += sample.disk_used_bytes;
    }
    ["total".to_owned(), String::new(), String::new(), percent(used_cpu), size(memory), size(disk)].map(plain)
}

/// In percent of one CPU, as in `sbx top` and in Docker.
fn cpu(sample: &ResourceSample) -> f64 {
    sample.cpu_used_percent * f64::from(sample.cpu_count)
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

fn share(used: u64, total: u64) -> String {
    format!("{} / {}", size(used), size(total))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stats(id: &str, name: Option<&str>, usage: Option<f64>) -> SandboxStats {
        let usage = usage.map(|cpu| {
            let sample = json!({"timestamp": "1970-01-01T00:00:00Z", "cpuCount": 2, "cpuUsedPercent": cpu,
                "memoryUsedBytes": 120_000_000, "memoryCacheBytes": 5, "memoryTotalBytes": 4_000_000_000_u64,
                "diskUsedBytes": 2_000_000, "diskTotalBytes": 10_000_000_000_u64});
            serde_json::from_value(sample).unwrap()
        });
        let state = if usage.is_some() { SandboxState::Running } else { SandboxState::Paused };
        SandboxStats { id: id.to_owned(), name: name.map(str::to_owned), state, usage }
    }

    #[test]
    fn a_table_shows_what_each_sandbox_uses_and_the_total() {
        let all = [
            stats("sb_a", Some("web"), Some(12.5)),
            stats("sb_b", None, Some(50.0)),
            stats("sb_c", None, None),
        ];
        assert_eq!(
            render(&all, Paint::None),
            "ID     NAME  STATE    CPU      MEMORY             DISK\n\
             sb_a   web   running  25.0 %   120.0 MB / 4.0 GB  2.0 MB / 10.0 GB\n\
             sb_b   -     running  100.0 %  120.0 MB / 4.0 GB  2.0 MB / 10.0 GB\n\
             sb_c   -     paused   -        -                  -\n\
             total                 125.0 %  240.0 MB           4.0 MB\n"
        );
        assert_eq!(render(&all[..1], Paint::None).lines().count(), 2);
    }

    #[test]
    fn json_has_the_sample_of_the_service() {
        let [running, paused] =
            [stats("sb_a", Some("web"), Some(12.5)), stats("sb_c", None, None)].map(|one| json!(one));
        assert_eq!((&running["usage"]["cpuUsedPercent"], &running["name"]), (&json!(12.5), &json!("web")));
        assert_eq!(paused, json!({ "id": "sb_c", "name": null, "state": "paused", "usage": null }));
    }
}
