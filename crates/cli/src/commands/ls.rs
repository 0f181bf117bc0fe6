//! `sbx ls`: lists the sandboxes of the account, newest first.

use std::process::ExitCode;

use anyhow::{Context, Result};
use sandboxd_client::{Client, List, SandboxItem, SandboxState};

use super::merged_lists::merge;
use crate::cli::LsArguments;
use crate::output;
use crate::style::{Paint, Tone};
use crate::table::{age, now_ms, plain, table};

pub async fn ls(client: &Client, json: bool, arguments: &LsArguments) -> Result<ExitCode> {
    let items = list_sandboxes(client, arguments).await?;
    if json {
        output::json(&items)?;
    } else if arguments.quiet {
        output::text(&items.iter().map(|item| format!("{}\n", item.id)).collect::<String>())?;
    } else {
        output::text(&render(&items, now_ms(), Paint::of(&std::io::stdout())))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn list_sandboxes(client: &Client, arguments: &LsArguments) -> Result<Vec<SandboxItem>> {
    let filtered = || {
        let mut list = client.list();
        if let Some(image) = &arguments.image {
            list = list.image(image);
        }
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

pub fn tone(state: SandboxState) -> Tone {
    match state {
        SandboxState::Running => Tone::Good,
        SandboxState::Creating | SandboxState::Paused => Tone::Waiting,
        SandboxState::Terminated => Tone::Faint,
    }
}

fn render(items: &[SandboxItem], now_ms: u64, paint: Paint) -> String {
    let rows: Vec<_> = items
        .iter()
        .map(|item| {
            let since = item.terminated_at.or(item.paused_at).or(item.started_at).unwrap_or(item.created_at);
            [
                (item.id.to_string(), Tone::Bold),
                plain(&item.image),
                (format!("{} {}", item.state, age(now_ms.saturating_sub(since.0))), tone(item.state)),
                plain(age(now_ms.saturating_sub(item.created_at.0))),
                plain(item.resources.cpu.to_string()),
                plain(format!("{} MB", item.resources.memory_mb)),
                plain(format!("{} MB", item.resources.disk_mb)),
            ]
        })
        .collect();
    table(["ID", "IMAGE", "STATE", "AGE", "CPU", "MEMORY", "DISK"], &rows, paint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_state_age_and_size() {
        let json = r#"{"id":"sb_abcdefgh","state":"paused","image":"ubuntu:24.04",
            "resources":{"cpu":2,"memoryMb":4096,"diskMb":10240},
            "createdAt":"1970-01-01T00:00:00Z","pausedAt":"1970-01-01T00:01:00Z"}"#;
        let item: SandboxItem = serde_json::from_str(json).unwrap();
        let text = render(&[item], 120_000, Paint::None);
        assert_eq!(
            text,
            "ID           IMAGE         STATE      AGE  CPU  MEMORY   DISK\n\
             sb_abcdefgh  ubuntu:24.04  paused 1m  2m   2    4096 MB  10240 MB\n"
        );
    }
}
