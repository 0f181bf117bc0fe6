//! `sbx ls`: lists the sandboxes of the account, newest first.

use std::process::ExitCode;

use anyhow::{Context, Result};
use base::SetSome;
use sandboxd_client::{Client, List, SandboxItem, SandboxState};

use super::merged_lists::merge;
use crate::cli::LsArguments;
use crate::output::OutputFormat;
use crate::style::{Paint, Tone};
use crate::table::{Cell, age, plain, table};
use crate::units::size_text;

const HEADING: [&str; 10] =
    ["ID", "NAME", "IMAGE", "ISOLATION", "STATE", "AGE", "EXPIRES", "CPU", "MEMORY", "DISK"];

/// Prints the sandboxes as a table, or only their ids.
pub async fn ls(client: &Client, format: OutputFormat, arguments: &LsArguments) -> Result<ExitCode> {
    let items = list_sandboxes(client, arguments).await?;
    if arguments.quiet {
        return format.print_ids(&items, |item| item.id.to_string());
    }
    let render = if arguments.wide { render_wide } else { render };
    format.print(&items, |paint| render(&items, base::unix_ms(), paint))
}

async fn list_sandboxes(client: &Client, arguments: &LsArguments) -> Result<Vec<SandboxItem>> {
    let filtered = || {
        // A list of ids needs no details.
        let mut list = if arguments.quiet { client.list() } else { client.list().details() };
        list = list.set_some(arguments.image.as_ref(), List::image);
        for (key, value) in &arguments.metadata {
            list = list.metadata(key, value);
        }
        list
    };
    let states: Vec<List> = match arguments.state.as_deref() {
        Some(name) => vec![filtered().state(state(name)?)],
        None if arguments.all => vec![filtered()],
        None => vec![filtered().state(SandboxState::Running), filtered().state(SandboxState::Paused)],
    };
    let mut items = merge(states, arguments.limit).await?;
    items.truncate(arguments.limit);
    Ok(items)
}

fn state(name: &str) -> Result<SandboxState> {
    serde_json::from_value(name.into()).with_context(|| format!("unknown state '{}'", name.escape_debug()))
}

/// The tone of a state in tables.
pub fn tone(state: SandboxState) -> Tone {
    match state {
        SandboxState::Running => Tone::Good,
        SandboxState::Creating | SandboxState::Paused => Tone::Waiting,
        SandboxState::Terminated => Tone::Faint,
    }
}

fn render(items: &[SandboxItem], now_ms: u64, paint: Paint) -> String {
    let rows = items.iter().map(|item| row(item, now_ms));
    table(HEADING, rows, paint)
}

/// With the metadata.
fn render_wide(items: &[SandboxItem], now_ms: u64, paint: Paint) -> String {
    let rows = items.iter().map(|item| widened(row(item, now_ms), plain(metadata(item))));
    table(widened(HEADING, "METADATA"), rows, paint)
}

/// A row or heading with one more column.
fn widened<T>(row: [T; 10], last: T) -> [T; 11] {
    let [id, name, image, isolation, state, age, expires, cpu, memory, disk] = row;
    [id, name, image, isolation, state, age, expires, cpu, memory, disk, last]
}

fn row(item: &SandboxItem, now_ms: u64) -> [Cell; 10] {
    let or_dash = |text: Option<String>| plain(text.unwrap_or_else(|| "-".to_owned()));
    let left = item.expires_at.map(|at| format!("in {}", age(at.0.saturating_sub(now_ms))));
    [
        (item.id.to_string(), Tone::Bold),
        or_dash(item.name.clone()),
        plain(&item.image),
        or_dash(item.isolation.map(|isolation| isolation.to_string())),
        (state_text(item, now_ms), tone(item.state)),
        plain(age(now_ms.saturating_sub(item.created_at.0))),
        or_dash(left),
        plain(item.resources.cpu.to_string()),
        plain(size_text(item.resources.memory_mb.into())),
        plain(size_text(item.resources.disk_mb.into())),
    ]
}

/// The state and how long it has lasted. A sandbox whose processes are on the disk is hibernated.
fn state_text(item: &SandboxItem, now_ms: u64) -> String {
    let since = item.terminated_at.or(item.paused_at).or(item.started_at).unwrap_or(item.created_at);
    let lasted = age(now_ms.saturating_sub(since.0));
    match item.hibernated_at {
        Some(_) => format!("hibernated {lasted}"),
        None => format!("{} {lasted}", item.state),
    }
}

fn metadata(item: &SandboxItem) -> String {
    let tags = item.metadata.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let tags = tags.collect::<Vec<_>>().join(", ");
    if tags.is_empty() { "-".to_owned() } else { tags }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<SandboxItem> {
        let json = r#"[
            {"id":"sb_abcdefgh","state":"paused","image":"ubuntu:24.04",
             "resources":{"cpu":2,"memoryMb":4096,"diskMb":10240},
             "createdAt":"1970-01-01T00:00:00Z","pausedAt":"1970-01-01T00:01:00Z",
             "hibernatedAt":"1970-01-01T00:01:30Z","isolation":"gvisor","name":"web","metadata":{"job":"7","user":"a"}},
            {"id":"sb_bbbbbbbb","state":"running","image":"a:1",
             "resources":{"cpu":4,"memoryMb":2500,"diskMb":10240},
             "createdAt":"1970-01-01T00:00:00Z","startedAt":"1970-01-01T00:00:00Z",
             "expiresAt":"1970-01-01T00:07:00Z","isolation":"container","metadata":{}},
            {"id":"sb_cccccccc","state":"terminated","image":"a:1",
             "resources":{"cpu":2,"memoryMb":2048,"diskMb":5120},
             "createdAt":"1970-01-01T00:00:00Z","terminatedAt":"1970-01-01T00:01:59Z"}]"#;
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_row_shows_state_expiry_and_size() {
        assert_eq!(
            render(&items(), 120_000, Paint::None),
            "ID           NAME  IMAGE         ISOLATION  STATE          AGE  EXPIRES  CPU  MEMORY  DISK\n\
             sb_abcdefgh  web   ubuntu:24.04  gvisor     hibernated 1m  2m   -        2    4g      10g\n\
             sb_bbbbbbbb  -     a:1           container  running 2m     2m   in 5m    4    2500m   10g\n\
             sb_cccccccc  -     a:1           -          terminated 1s  2m   -        2    2g      5g\n"
        );
    }

    #[test]
    fn a_wide_row_shows_the_metadata_too() {
        let text = render_wide(&items(), 120_000, Paint::None);
        let last: Vec<&str> = text.lines().map(|line| line.rsplit("  ").next().unwrap_or_default()).collect();
        assert_eq!(last, ["METADATA", "job=7, user=a", "-", "-"]);
    }
}
