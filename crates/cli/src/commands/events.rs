//! `sbx events`: lists events, newest last, and follows new ones with `--follow`.

use std::process::ExitCode;

use anyhow::Result;
use base::SetSome;
use futures_util::{StreamExt, TryStreamExt};
use sandboxd_client::{Client, EventId, EventKind, EventStream, Events, RuntimeEvent, Sandbox};
use serde_json::Value;

use super::named_sandbox::find_sandbox;
use crate::cli::EventsArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat};
use crate::style::{Paint, Tone};

const DEFAULT_COUNT: usize = 100;
const DEFAULT_COUNT_WITH_FOLLOW: usize = 10;
const MAX_PAGE: usize = 100;

/// Prints the newest events, and with `--follow` the new ones until a signal.
pub async fn events(client: &Client, format: OutputFormat, arguments: &EventsArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let work = async {
        let sandbox = match &arguments.id {
            Some(id) => Some(find_sandbox(client, id).await?),
            None => None,
        };
        let query = || query(client, sandbox.as_ref(), arguments);
        // Subscribing before listing: otherwise events between the two would be missed.
        let live = if arguments.follow { Some(query()?.follow().await?) } else { None };
        let default = if arguments.follow { DEFAULT_COUNT_WITH_FOLLOW } else { DEFAULT_COUNT };
        let last = list(query()?, arguments.last.unwrap_or(default), format).await?;
        match live {
            Some(live) => follow(live, last, format).await,
            None => Ok(()),
        }
    };
    tokio::select! {
        done = work => done.map(|()| ExitCode::SUCCESS),
        code = interrupt.first() => Ok(ExitCode::from(code)),
    }
}

fn query(client: &Client, sandbox: Option<&Sandbox>, arguments: &EventsArguments) -> Result<Events> {
    let mut events = sandbox.map_or_else(|| client.events(), Sandbox::events);
    for kind in &arguments.kinds {
        events = events.kinds(kind);
    }
    events = events.set_some(arguments.run.as_ref(), Events::run);
    Ok(events)
}

/// Prints the newest `count` events, oldest first, and returns the id of the last one.
async fn list(events: Events, count: usize, format: OutputFormat) -> Result<Option<EventId>> {
    if count == 0 {
        return Ok(None);
    }
    let page = u32::try_from(count.min(MAX_PAGE)).unwrap_or(1);
    let newest = events.newest_first().page_size(page).stream().take(count);
    let mut found: Vec<RuntimeEvent> = newest.try_collect().await?;
    found.reverse();
    found.iter().try_for_each(|event| print(event, format))?;
    Ok(found.last().map(|event| event.id))
}

async fn follow(mut live: EventStream, last: Option<EventId>, format: OutputFormat) -> Result<()> {
    while let Some(event) = live.try_next().await? {
        if last.is_none_or(|last| event.id > last) {
            print(&event, format)?;
        }
    }
    Ok(())
}

fn print(event: &RuntimeEvent, format: OutputFormat) -> Result<()> {
    match format {
        OutputFormat::Plain => output::text(&line(event, Paint::of(&std::io::stdout()))),
        OutputFormat::Json => output::text(&format!("{}\n", serde_json::to_string(event)?)),
    }
}

fn line(event: &RuntimeEvent, paint: Paint) -> String {
    let sandbox = event.sandbox_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let kind = format!("{:<18}", event.kind.as_str());
    let data: Vec<String> = event
        .data
        .iter()
        .filter(|(name, _)| *name != "executionId")
        .map(|(name, value)| format!("{name}={}", brief(value)))
        .collect();
    let run = if event.run_id.is_empty() { String::new() } else { format!("  run={}", event.run_id) };
    let time = paint.text(Tone::Faint, &event.timestamp.to_string());
    let text = format!("{time}  {sandbox}  {}{run}  {}", paint.text(tone(event.kind), &kind), data.join(" "));
    format!("{}\n", text.trim_end())
}

/// A value on one line, shortened. Commands and messages may contain newlines and control sequences.
fn brief(value: &Value) -> String {
    const MAX_CHARS: usize = 100;
    let text = match value {
        Value::String(text) if !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"') => {
            text.clone()
        }
        other => other.to_string(),
    };
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn tone(kind: EventKind) -> Tone {
    use EventKind::{
        AgentError, ExecError, FileError, NetworkRefused, SandboxError, SandboxPaused, SandboxStarted,
        SandboxTerminated,
    };
    match kind {
        SandboxError | ExecError | FileError | AgentError | NetworkRefused => Tone::Bad,
        SandboxStarted => Tone::Good,
        SandboxPaused => Tone::Waiting,
        SandboxTerminated => Tone::Faint,
        _ => Tone::Bold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_printed_on_one_line() {
        let json = r#"{"id":"ev_0000000000000042","timestamp":"2026-01-02T03:04:05.678Z","type":"exec.completed",
            "sandboxId":"sb_aaaaaaaa","runId":"r","data":{"command":"a\n\u001b[2J","durationMs":3,"executionId":"ex_1"}}"#;
        let event: RuntimeEvent = serde_json::from_str(json).unwrap();
        assert_eq!(
            line(&event, Paint::None),
            "2026-01-02T03:04:05.678Z  sb_aaaaaaaa  exec.completed      run=r  command=\"a\\n\\u001b[2J\" durationMs=3\n"
        );
        assert_eq!(brief(&"x".repeat(500).into()).chars().count(), 101);
        assert_eq!(
            (brief(&"true".into()), brief(&"a b".into()), brief(&Value::Null)),
            ("true".into(), "\"a b\"".into(), "null".into())
        );
    }
}
