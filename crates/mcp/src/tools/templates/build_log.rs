//! The action `read_log` of `manage_templates`, and how the action `build` waits for its build.
//!
//! A call follows the log until the build is over or the wait is. The log is read from its start, and only its tail is kept.

use std::time::Duration;

use futures_util::StreamExt;
use sandboxd_client::{BuildOutput, TemplateId, TemplateState, TemplateView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::ListedTemplate;
use crate::failure::ToolFailure;
use crate::tools::output::Tail;
use crate::tools::reply::{ToolReply, is_zero};
use crate::tools::schema::id_pattern;
use crate::tools::{ToolCall, parse_id, within};

/// The longest wait of one call.
pub const LONGEST_WAIT_S: u64 = 300;
const DEFAULT_WAIT_S: u64 = 10;
/// The time for reading the whole log of a build that is over.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The bytes of the log in one result.
const LOG: usize = 16 << 10;

/// Whose log to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadLog {
    /// The template.
    #[schemars(length(max = 64), regex(pattern = id_pattern(TemplateId::PREFIX)))]
    template_id: String,
    /// How long to wait for the end of the build. Default: 10.
    #[schemars(range(min = 1, max = LONGEST_WAIT_S))]
    wait_seconds: Option<u64>,
}

/// Reads the log of a build, and waits for its end.
pub async fn read(call: &ToolCall, arguments: ReadLog) -> Result<ToolReply<Built>, ToolFailure> {
    let ReadLog { template_id, wait_seconds } = arguments;
    let mut wait = wait(wait_seconds, DEFAULT_WAIT_S)?;
    let id: TemplateId = parse_id("templateId", &template_id)?;
    if call.client.template(id.as_str()).await?.state.is_final() {
        // There is nothing to wait for, and a short wait could cut a long log.
        wait = READ_TIMEOUT;
    }
    let mut log = Log::default();
    let stopped = follow(call, &id, wait, &mut log).await;
    if let Stopped::Cancelled = stopped {
        return Err(ToolFailure::cancelled());
    }
    conclude(call, &id, log, stopped).await
}

/// The time to wait for the end of a build. Fails if it is out of range.
pub fn wait(seconds: Option<u64>, default_s: u64) -> Result<Duration, ToolFailure> {
    within("waitSeconds", seconds.unwrap_or(default_s), 1, LONGEST_WAIT_S).map(Duration::from_secs)
}

/// What a call has read of a log.
#[derive(Debug)]
pub struct Log {
    tail: Tail,
    bytes: u64,
    /// For notifications of progress.
    last_line: String,
    done: Option<TemplateView>,
}

impl Default for Log {
    fn default() -> Self {
        Self { tail: Tail::new(LOG), bytes: 0, last_line: String::new(), done: None }
    }
}

impl Log {
    fn add(&mut self, item: BuildOutput) {
        let mut line = match item {
            BuildOutput::Step(step) => {
                let cached = if step.cached { " (from the cache)" } else { "" };
                format!("[step {} of {}] {}{cached}", step.number, step.total, step.text)
            }
            BuildOutput::Stdout(line) | BuildOutput::Stderr(line) => line,
            BuildOutput::Note(note) => format!("[note] {note}"),
            BuildOutput::Done(template) => {
                self.done = Some(*template);
                return;
            }
        };
        self.last_line = line.chars().take(200).collect();
        line.push('\n');
        self.bytes = self.bytes.saturating_add(line.len() as u64);
        self.tail.add(line);
    }
}

/// Why a call stopped following a build.
#[derive(Debug)]
pub enum Stopped {
    Done,
    /// The build goes on.
    Waited,
    Cancelled,
    Failed(sandboxd_client::Error),
}

/// Adds the lines of the log until the build is over, the wait is, or the call is cancelled.
pub async fn follow(call: &ToolCall, id: &TemplateId, wait: Duration, log: &mut Log) -> Stopped {
    let started = Instant::now();
    let mut ticks = tokio::time::interval_at(started + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut items = call.client.template_log(id.as_str());
    let end = tokio::time::sleep(wait);
    tokio::pin!(end);
    loop {
        let item = tokio::select! {
            // First, so that a long log cannot delay it.
            biased;
            () = call.cancelled.cancelled() => return Stopped::Cancelled,
            () = &mut end => return Stopped::Waited,
            _ = ticks.tick(), if call.progress.is_some() => {
                if let Some(progress) = &call.progress {
                    progress.send(started.elapsed().as_secs_f64(), None, &log.last_line).await;
                }
                continue;
            }
            item = items.next() => item,
        };
        match item {
            None => return Stopped::Done,
            Some(Ok(item)) => log.add(item),
            Some(Err(error)) => return Stopped::Failed(error),
        }
    }
}

/// The result, also if the log could not be read to its end: the model needs the id of the template.
pub async fn conclude(
    call: &ToolCall,
    id: &TemplateId,
    log: Log,
    stopped: Stopped,
) -> Result<ToolReply<Built>, ToolFailure> {
    let template = match log.done {
        Some(template) => template,
        None => call.client.template(id.as_str()).await?,
    };
    let text = log.tail.text();
    let omitted_bytes = log.bytes.saturating_sub(text.len() as u64);
    let built = Built { template: template.into(), log: text, omitted_bytes };
    let note = match stopped {
        Stopped::Failed(error) => format!("The log cannot be read to its end: {error}."),
        Stopped::Done | Stopped::Waited | Stopped::Cancelled => String::new(),
    };
    Ok(ToolReply::texts([built.log.clone(), built.status(), note], built))
}

/// The state of a build, and the end of its log.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Built {
    #[serde(flatten)]
    template: ListedTemplate,
    /// The end of the log.
    log: String,
    /// Bytes of the log before it.
    #[serde(skip_serializing_if = "is_zero")]
    omitted_bytes: u64,
}

impl Built {
    /// What the model has to know of the build, and what to do next.
    fn status(&self) -> String {
        let ListedTemplate { template_id, name, version, steps, error, .. } = &self.template;
        let next = format!(
            "Call manage_templates with the action read_log and the templateId {template_id} to follow it."
        );
        match self.template.state {
            TemplateState::Queued => {
                format!("The build of {name}:{version} waits for other builds. {next}")
            }
            TemplateState::Building => {
                let (done, total) = (steps.done, steps.total);
                format!("The build of {name}:{version} is running; {done} of {total} steps are done. {next}")
            }
            TemplateState::Ready => format!(
                "The template {name}:{version} is ready. Pass {name}, or {template_id} for this version, as image to create_sandbox."
            ),
            TemplateState::Failed => {
                let why = error.as_ref().map_or("the service names no reason", |error| &error.message);
                format!(
                    "The build of {name}:{version} failed: {why}. Correct the Dockerfile and build again."
                )
            }
            TemplateState::Cancelled => format!("The build of {name}:{version} was cancelled."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BuildFault, Steps};
    use super::*;

    fn built(state: TemplateState, error: Option<&str>) -> Built {
        let template = ListedTemplate {
            template_id: "tpl_1".to_owned(),
            name: "web".to_owned(),
            version: 3,
            state,
            base: "ubuntu:24.04".to_owned(),
            steps: Steps { total: 5, done: 2, cached: 1 },
            size_bytes: 0,
            error: error.map(|message| BuildFault { message: message.to_owned(), line: None }),
            created_at: sandboxd_client::Timestamp(0),
        };
        Built { template, log: String::new(), omitted_bytes: 0 }
    }

    #[test]
    fn the_model_reads_what_to_do_next() {
        for (state, error, start, part) in [
            (
                TemplateState::Queued,
                None,
                "The build of web:3 waits for other builds.",
                "read_log and the templateId tpl_1",
            ),
            (
                TemplateState::Building,
                None,
                "The build of web:3 is running; 2 of 5 steps are done.",
                "read_log and the templateId tpl_1",
            ),
            (
                TemplateState::Ready,
                None,
                "The template web:3 is ready.",
                "Pass web, or tpl_1 for this version",
            ),
            (
                TemplateState::Failed,
                Some("no such image"),
                "The build of web:3 failed: no such image.",
                "build again",
            ),
            (
                TemplateState::Failed,
                None,
                "The build of web:3 failed: the service names no reason.",
                "build again",
            ),
            (TemplateState::Cancelled, None, "The build of web:3 was cancelled.", "cancelled"),
        ] {
            let status = built(state, error).status();
            assert!(status.starts_with(start) && status.contains(part), "{status}");
        }
    }

    #[test]
    fn a_log_is_lines_of_steps_output_and_notes() {
        let mut log = Log::default();
        let step = |cached| {
            let text = "RUN make".to_owned();
            BuildOutput::Step(sandboxd_client::BuildStep { number: 1, total: 2, line: 4, text, cached })
        };
        for item in [
            step(true),
            step(false),
            BuildOutput::Stdout("out".to_owned()),
            BuildOutput::Stderr("err".to_owned()),
            BuildOutput::Note("n".to_owned()),
        ] {
            log.add(item);
        }
        let expected =
            "[step 1 of 2] RUN make (from the cache)\n[step 1 of 2] RUN make\nout\nerr\n[note] n\n";
        assert_eq!((log.tail.text().as_str(), log.bytes), (expected, expected.len() as u64));
        assert_eq!(log.last_line, "[note] n");
        log.add(BuildOutput::Stdout("ä".repeat(500)));
        assert_eq!(log.last_line.chars().count(), 200, "a notification of progress is short");
    }

    #[test]
    fn only_the_end_of_a_long_log_is_kept_and_all_of_it_is_counted() {
        let mut log = Log::default();
        for number in 0..1000 {
            log.add(BuildOutput::Stdout(format!("{number:099}")));
        }
        assert_eq!(log.bytes, 100_000);
        let text = log.tail.text();
        assert!(text.len() <= LOG && text.ends_with("999\n"), "{}", text.len());
    }

    #[test]
    fn a_wait_is_at_most_five_minutes() {
        let seconds = |given| wait(given, 10).ok().map(|wait| wait.as_secs());
        let given = [None, Some(1), Some(300), Some(0), Some(301)];
        assert_eq!(given.map(seconds), [Some(10), Some(1), Some(300), None, None]);
    }
}
