//! `sbx ls`: lists the sandboxes of the account, newest first.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};
use base::SetSome;
use futures_util::{StreamExt, stream};
use sandboxd_client::{
    Client, ExecutionState, ExecutionView, List, SandboxId, SandboxItem, SandboxState, TemplateId,
};

use super::logs::first_line;
use super::main_command::{is_background, main_command};
use super::merged_lists::merge;
use crate::cli::LsArguments;
use crate::output::OutputFormat;
use crate::style::{Paint, Tone};
use crate::table::{Cell, age, plain, table};
use crate::units::size_text;

const HEADING: [&str; 10] =
    ["ID", "NAME", "IMAGE", "ISOLATION", "STATE", "AGE", "EXPIRES", "CPU", "MEMORY", "DISK"];

/// The metadata of the sandboxes in which the service runs the steps of builds: the id of the template.
const BUILD_KEY: &str = "template";
/// Commands are looked up in one request per sandbox, so without --wide only if there are at most so many.
const FEW: usize = 20;
/// Requests at a time.
const PARALLEL: usize = 8;

/// The commands in the background of sandboxes that have one.
type Commands = BTreeMap<SandboxId, ExecutionView>;

/// Prints the sandboxes as a table, or only their ids.
pub async fn ls(client: &Client, format: OutputFormat, arguments: &LsArguments) -> Result<ExitCode> {
    let items = list_sandboxes(client, arguments).await?;
    if arguments.quiet {
        return format.print_ids(&items, |item| item.id.to_string());
    }
    // The document has what the service lists.
    let commands = if format == OutputFormat::Json {
        Commands::new()
    } else {
        commands(client, &items, if arguments.wide { usize::MAX } else { FEW }).await
    };
    let render = if arguments.wide { render_wide } else { render };
    format.print(&items, |paint| render(&items, &commands, base::unix_ms(), paint))
}

/// The commands of live sandboxes, if there are at most `most`. A failure leaves commands out: the list is what was asked for.
async fn commands(client: &Client, items: &[SandboxItem], most: usize) -> Commands {
    let is_live = |item: &&SandboxItem| matches!(item.state, SandboxState::Running | SandboxState::Paused);
    let live: Vec<&SandboxItem> = items.iter().filter(is_live).collect();
    if live.len() > most {
        return Commands::new();
    }
    let client = client.without_limit_waits();
    let found = stream::iter(live).map(|item| {
        let sandbox = client.sandbox(item.id.as_str());
        async move {
            let all = sandbox.ok()?.executions().await.ok()?;
            let command = main_command(&all).filter(|view| is_background(view))?;
            Some((item.id.clone(), command.clone()))
        }
    });
    found.buffer_unordered(PARALLEL).filter_map(std::future::ready).collect().await
}

async fn list_sandboxes(client: &Client, arguments: &LsArguments) -> Result<Vec<SandboxItem>> {
    let name = arguments.name.as_deref();
    let may_have_steps = arguments.all || arguments.state.is_some();
    let filtered = || {
        // A list of ids needs no details, unless they select.
        let needs_details = !arguments.quiet || name.is_some() || may_have_steps;
        let mut list = if needs_details { client.list().details() } else { client.list() };
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
    let hides_steps = arguments.metadata.is_empty();
    let keep = |item: &SandboxItem| {
        name.is_none_or(|name| is_named(item, name)) && !(hides_steps && is_ended_step(item))
    };
    let mut items = merge(states, arguments.limit, keep).await?;
    items.truncate(arguments.limit);
    Ok(items)
}

fn is_named(item: &SandboxItem, name: &str) -> bool {
    item.id.as_str() == name || item.name.as_deref().is_some_and(|own| own.contains(name))
}

/// Whether a build has used the sandbox for a step. One that is running counts in the quotas, so it is shown.
fn is_ended_step(item: &SandboxItem) -> bool {
    let template = item.metadata.as_ref().and_then(|metadata| metadata.get(BUILD_KEY));
    item.state == SandboxState::Terminated && template.is_some_and(|id| id.parse::<TemplateId>().is_ok())
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

fn render(items: &[SandboxItem], commands: &Commands, now_ms: u64, paint: Paint) -> String {
    let rows = items.iter().map(|item| row(item, commands.get(&item.id), now_ms));
    table(HEADING, rows, paint)
}

/// With the command and the metadata.
fn render_wide(items: &[SandboxItem], commands: &Commands, now_ms: u64, paint: Paint) -> String {
    let rows = items.iter().map(|item| {
        let command = commands.get(&item.id);
        let text = command.map_or_else(|| "-".to_owned(), |view| first_line(&view.command));
        widened(row(item, command, now_ms), [plain(text), plain(metadata(item))])
    });
    table(widened(HEADING, ["COMMAND", "METADATA"]), rows, paint)
}

/// A row or heading with two more columns.
fn widened<T>(row: [T; 10], more: [T; 2]) -> [T; 12] {
    let [id, name, image, isolation, state, age, expires, cpu, memory, disk] = row;
    let [command, metadata] = more;
    [id, name, image, isolation, state, age, expires, cpu, memory, disk, command, metadata]
}

fn row(item: &SandboxItem, command: Option<&ExecutionView>, now_ms: u64) -> [Cell; 10] {
    let or_dash = |text: Option<String>| plain(text.unwrap_or_else(|| "-".to_owned()));
    let left = item.expires_at.map(|at| format!("in {}", age(at.0.saturating_sub(now_ms))));
    let ended = command.and_then(ended_text).map_or_else(String::new, |text| format!(" ({text})"));
    [
        (item.id.to_string(), Tone::Bold),
        or_dash(item.name.clone()),
        plain(&item.image),
        or_dash(item.isolation.map(|isolation| isolation.to_string())),
        (state_text(item, now_ms) + &ended, tone(item.state)),
        plain(age(now_ms.saturating_sub(item.created_at.0))),
        or_dash(left),
        plain(item.resources.cpu.to_string()),
        plain(size_text(item.resources.memory_mb.into())),
        plain(size_text(item.resources.disk_mb.into())),
    ]
}

/// How a command ended, as the list of containers has it in Docker. `None` while it runs.
fn ended_text(command: &ExecutionView) -> Option<String> {
    match (command.state, command.exit_code, &command.signal) {
        (ExecutionState::Running, ..) => None,
        (ExecutionState::Lost, ..) => Some("command lost".to_owned()),
        (ExecutionState::Exited, Some(code), _) => Some(format!("command exited {code}")),
        (ExecutionState::Exited, None, Some(signal)) => Some(format!("command killed by {signal}")),
        (ExecutionState::Exited, None, None) => Some("command did not start".to_owned()),
    }
}

/// The state, why it was terminated, and how long that has lasted. A sandbox whose processes are on the disk is hibernated.
fn state_text(item: &SandboxItem, now_ms: u64) -> String {
    let since = item.terminated_at.or(item.paused_at).or(item.started_at).unwrap_or(item.created_at);
    let lasted = age(now_ms.saturating_sub(since.0));
    match (item.hibernated_at, &item.reason) {
        (Some(_), _) => format!("hibernated {lasted}"),
        (None, Some(reason)) => format!("{} ({reason}) {lasted}", item.state),
        (None, None) => format!("{} {lasted}", item.state),
    }
}

fn metadata(item: &SandboxItem) -> String {
    let tags = item.metadata.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let tags = tags.collect::<Vec<_>>().join(", ");
    if tags.is_empty() { "-".to_owned() } else { tags }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::main_command::tests::view;

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
            render(&items(), &Commands::new(), 120_000, Paint::None),
            "ID           NAME  IMAGE         ISOLATION  STATE          AGE  EXPIRES  CPU  MEMORY  DISK\n\
             sb_abcdefgh  web   ubuntu:24.04  gvisor     hibernated 1m  2m   -        2    4g      10g\n\
             sb_bbbbbbbb  -     a:1           container  running 2m     2m   in 5m    4    2500m   10g\n\
             sb_cccccccc  -     a:1           -          terminated 1s  2m   -        2    2g      5g\n"
        );
    }

    #[test]
    fn a_terminated_sandbox_is_listed_with_the_reason_of_its_end() {
        let mut ended = items().remove(2);
        ended.reason = Some("timeout".to_owned());
        assert_eq!(row(&ended, None, 120_000)[4].0, "terminated (timeout) 1s");
    }

    #[test]
    fn a_wide_row_shows_the_metadata_too() {
        let text = render_wide(&items(), &Commands::new(), 120_000, Paint::None);
        let last: Vec<&str> = text.lines().map(|line| line.rsplit("  ").next().unwrap_or_default()).collect();
        assert_eq!(last, ["METADATA", "job=7, user=a", "-", "-"]);
    }

    #[test]
    fn a_state_says_how_the_command_in_the_background_ended() {
        for (changes, state) in [
            (json!({ "state": "exited", "exitCode": 2 }), "running 2m (command exited 2)"),
            (json!({ "state": "exited", "signal": "SIGKILL" }), "running 2m (command killed by SIGKILL)"),
            (json!({ "state": "exited" }), "running 2m (command did not start)"),
            (json!({ "state": "lost" }), "running 2m (command lost)"),
            (json!({ "state": "running" }), "running 2m"),
        ] {
            assert_eq!(row(&items()[1], Some(&view(&changes)), 120_000)[4].0, state, "{changes}");
        }
        let commands = Commands::from([(items()[1].id.clone(), view(&json!({ "state": "running" })))]);
        let text = render_wide(&items(), &commands, 120_000, Paint::None);
        let columns: Vec<&str> =
            text.lines().nth(2).unwrap_or_default().split_whitespace().rev().take(2).collect();
        assert_eq!(columns, ["-", "make"], "{text}");
    }

    #[test]
    fn a_word_selects_by_a_part_of_the_name_or_by_the_id() {
        let named = |word: &str| {
            let found = items().into_iter().filter(|item| is_named(item, word));
            found.map(|item| item.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            (named("we"), named("sb_bbbbbbbb")),
            (vec!["sb_abcdefgh".into()], vec!["sb_bbbbbbbb".into()])
        );
        assert!(named("sb_bbbb").is_empty() && named("db").is_empty());
    }

    #[test]
    fn ended_sandboxes_of_build_steps_are_told_by_their_template() {
        let mut items = items();
        let steps = |items: &[SandboxItem]| items.iter().map(is_ended_step).collect::<Vec<_>>();
        assert_eq!(steps(&items), [false; 3]);
        for item in &mut items {
            item.metadata = Some([(BUILD_KEY.to_owned(), "tpl_abcdefgh".to_owned())].into());
        }
        assert_eq!(steps(&items), [false, false, true]);
        items[2].metadata = Some([(BUILD_KEY.to_owned(), "mine".to_owned())].into());
        assert_eq!(steps(&items), [false; 3]);
    }
}
