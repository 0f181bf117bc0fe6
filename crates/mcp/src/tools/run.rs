//! `run_command`.
//!
//! A command is a detached execution, so its output can be read on with a cursor, and a background command outlives the call.
//!
//! ```text
//! start ──background──> result with a cursor
//!   └──> follow ──Done──> result (with a cursor if the output is longer than a page)
//!           └──cancelled, or the call is dropped──> the execution is cancelled
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base::SetSome;
use futures_util::StreamExt;
use sandboxd_client::{Code, Detached, Done, EndReason, Execute, ExecutionState, Following};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::cancel_on_drop::CancelOnDrop;
use super::output::OutputPage;
use super::reply::{ToolReply, is_zero};
use super::schema::{self, Effect};
use super::shared::SandboxReference;
use super::{Declared, ToolCall, within};
use crate::failure::ToolFailure;

const DEFAULT_TIMEOUT_S: u64 = 60;
const LONGEST_TIMEOUT_S: u64 = 300;
/// How long a call that reads on waits for a running command.
const DEFAULT_WAIT_S: u64 = 10;
/// The time that the service gets to end a command after its timeout.
const MARGIN: Duration = Duration::from_secs(15);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a command waits for others in its sandbox.
const LONGEST_WAIT: Duration = Duration::from_secs(50);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MOST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_COMMAND: usize = 65_536;

const LONGEST_STDIN: usize = 1 << 20;

/// Run a command line with bash in a sandbox, and return its exit code and output. The command is killed after timeoutSeconds; for a
/// server or a longer job set background to true, which returns immediately. At most 32 KiB of output is in the result; if it has a
/// cursor, call run_command again with only that cursor to read the output that follows, or new output of a background command. Each
/// command is a new shell: cd and variables do not persist, files do.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunCommand {
    /// The command line, such as: cd src && make test. Required unless cursor is given.
    #[schemars(length(min = 1, max = LONGEST_COMMAND))]
    command: Option<String>,
    /// Working directory. Default: that of the sandbox.
    #[schemars(length(min = 1, max = 4096))]
    cwd: Option<String>,
    /// Environment variables of this command.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 100))]
    env: BTreeMap<String, String>,
    /// Standard input of the command. Default: empty.
    #[schemars(length(max = LONGEST_STDIN))]
    stdin: Option<String>,
    /// Time after which the command is killed; default 60. With cursor: how long to wait for output; default 10.
    #[schemars(range(min = 1, max = LONGEST_TIMEOUT_S))]
    timeout_seconds: Option<u64>,
    /// Return at once and let the command run without a time limit. Default: false.
    #[serde(default)]
    background: bool,
    /// The cursor of a previous result, to read on. Not together with command.
    #[schemars(length(max = 256))]
    cursor: Option<String>,
    sandbox_id: Option<SandboxReference>,
}

impl Declared for RunCommand {
    const NAME: &'static str = "run_command";
    const TITLE: &'static str = "Run a command";
    const EFFECT: Effect = Effect::Runs;
    type Output = Ran;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<Ran>, ToolFailure> {
        match (&self.command, &self.cursor) {
            (Some(_), None) => start(call, self).await,
            (None, Some(_)) => read_on(call, self).await,
            _ => Err(ToolFailure::argument(
                "Give either command, to run it, or cursor, to read the output of an earlier command.",
            )),
        }
    }
}

/// A command and a part of its output.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ran {
    /// The sandbox.
    sandbox_id: String,
    /// The id of the execution.
    execution_id: String,
    /// lost: the sandbox ended the command, and its exit code is unknown.
    #[schemars(schema_with = "schema::execution_state")]
    state: ExecutionState,
    /// The exit code, if the command exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// The signal that killed the command, such as SIGKILL.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// Whether the command was killed because of timeoutSeconds.
    timed_out: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// Standard output, from the beginning or the cursor.
    stdout: String,
    /// Standard error, from the beginning or the cursor.
    stderr: String,
    /// The end of a longer output, stdout and stderr together.
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<String>,
    /// Bytes of output after stdout and stderr, tail included.
    #[serde(skip_serializing_if = "is_zero")]
    omitted_bytes: u64,
    /// Bytes that the service did not store.
    #[serde(skip_serializing_if = "is_zero")]
    dropped_bytes: u64,
    /// If output follows or the command runs: the cursor of the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// A position in the output of an execution.
#[derive(Debug, PartialEq, Eq)]
struct Cursor {
    sandbox: String,
    execution: String,
    /// None: the beginning.
    offset: Option<String>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.sandbox, self.execution)?;
        self.offset.iter().try_for_each(|offset| write!(f, "@{offset}"))
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (sandbox, rest) = text.split_once('/').ok_or(())?;
        let (execution, offset) = match rest.split_once('@') {
            Some((execution, offset)) => (execution, Some(offset.to_owned()).filter(|text| !text.is_empty())),
            None => (rest, None),
        };
        Ok(Self { sandbox: sandbox.to_owned(), execution: execution.to_owned(), offset })
    }
}

impl Cursor {
    fn of(execution: &Detached, offset: Option<String>) -> Self {
        let (sandbox, id) = (execution.sandbox().id().to_string(), execution.id().to_string());
        Self { sandbox, execution: id, offset: offset.filter(|offset| !offset.is_empty()) }
    }
}

async fn start(call: &ToolCall, arguments: RunCommand) -> Result<ToolReply<Ran>, ToolFailure> {
    let RunCommand { command, cwd, env, stdin, timeout_seconds, background, sandbox_id, .. } = arguments;
    let timeout_s =
        within("timeoutSeconds", timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_S), 1, LONGEST_TIMEOUT_S)?;
    let timeout = Duration::from_secs(timeout_s);
    let target = call.target(sandbox_id.as_deref()).await?;
    let request = || {
        let mut execute = target.sandbox.execute(command.clone().unwrap_or_default());
        execute = execute.set_some(cwd.as_ref(), Execute::cwd);
        for (name, value) in &env {
            execute = execute.env(name, value);
        }
        execute = execute.set_some(stdin.as_ref(), Execute::stdin);
        if background { execute } else { execute.timeout(timeout) }
    };
    let execution = match detach(call, request).await {
        Ok(execution) => execution,
        Err(error) => return Err(call.failed(&target.sandbox, error).await),
    };
    if background && !call.cancelled.is_cancelled() {
        let page = OutputPage::not_read();
        let ran = Ran::new(&execution, page, ExecutionState::Running);
        return Ok(finish(ran, target.note.into_iter().collect()));
    }
    let begun = execution.clone();
    let kill = CancelOnDrop::new(move || cancel(begun.clone()));
    let mut page = OutputPage::default();
    let following = execution.follow_with_line_ends();
    match follow(call, following, None, &mut page, timeout + MARGIN, Until::Done).await {
        Ended::Cancelled => {
            kill.cancel().await;
            return Err(ToolFailure::cancelled());
        }
        Ended::Failed(error) => {
            kill.cancel().await;
            return Err(call.failed(&target.sandbox, error).await);
        }
        Ended::Done | Ended::Waited | Ended::Full => kill.disarm(),
    }
    conclude(call, &execution, page, target.note).await
}

/// Starts an execution. Waits while the sandbox runs as many commands as it may, because models make calls in parallel.
async fn detach(call: &ToolCall, request: impl Fn() -> Execute) -> sandboxd_client::Result<Detached> {
    let began = Instant::now();
    let mut wait = FIRST_WAIT;
    loop {
        let error = match request().detached().await {
            Err(error) if error.code() == Code::RateLimited => error,
            started => return started,
        };
        let pause = wait.max(error.retry_after().unwrap_or_default());
        if began.elapsed() + pause > LONGEST_WAIT {
            return Err(error);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = call.cancelled.cancelled() => return Err(error),
        }
        wait = (wait * 2).min(MOST_PAUSE);
    }
}

async fn read_on(call: &ToolCall, arguments: RunCommand) -> Result<ToolReply<Ran>, ToolFailure> {
    let text = arguments.cursor.unwrap_or_default();
    let foreign = || {
        ToolFailure::new(
            "cursor is not a cursor of run_command.",
            "Pass the cursor of a previous result unchanged, or run the command again.",
        )
    };
    let cursor: Cursor = text.parse().map_err(|()| foreign())?;
    if arguments.sandbox_id.is_some_and(|id| *id != *cursor.sandbox) {
        return Err(ToolFailure::argument("sandboxId is not the sandbox of the cursor; leave it out."));
    }
    let wait_s =
        within("timeoutSeconds", arguments.timeout_seconds.unwrap_or(DEFAULT_WAIT_S), 1, LONGEST_TIMEOUT_S)?;
    let sandbox = call.client.sandbox(&cursor.sandbox).map_err(|_| foreign())?;
    let execution = sandbox.execution(&cursor.execution).map_err(|_| foreign())?;
    let following = match &cursor.offset {
        Some(offset) => execution.follow_with_line_ends_from(offset.clone()),
        None => execution.follow_with_line_ends(),
    };
    let mut page = OutputPage::default();
    let wait = Duration::from_secs(wait_s);
    match follow(call, following, cursor.offset, &mut page, wait, Until::Full).await {
        Ended::Cancelled => Err(ToolFailure::cancelled()),
        Ended::Failed(error) => Err(call.failed(&sandbox, error).await),
        Ended::Done | Ended::Waited | Ended::Full => conclude(call, &execution, page, None).await,
    }
}

/// When to stop reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// At the end of the command: output after the page is counted, and its end is kept.
    Done,
    /// When the page is full.
    Full,
}

#[derive(Debug)]
enum Ended {
    Done,
    Full,
    /// The command still runs.
    Waited,
    Cancelled,
    Failed(sandboxd_client::Error),
}

/// Reads output into the page. Afterwards `page.next` is the offset of the output that follows, if the command runs or the page is
/// full.
async fn follow(
    call: &ToolCall,
    mut following: Following,
    begin: Option<String>,
    page: &mut OutputPage,
    wait: Duration,
    until: Until,
) -> Ended {
    let started = Instant::now();
    let mut ticks = tokio::time::interval_at(started + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before = begin;
    let end = tokio::time::sleep(wait);
    tokio::pin!(end);
    loop {
        let item = tokio::select! {
            // First, so that endless output cannot delay it.
            biased;
            () = call.cancelled.cancelled() => return Ended::Cancelled,
            () = &mut end => {
                if !page.is_full() {
                    page.next = Some(before.unwrap_or_default());
                }
                return Ended::Waited;
            }
            _ = ticks.tick(), if call.progress.is_some() => {
                if let Some(progress) = &call.progress {
                    let total = (until == Until::Done).then(|| wait.saturating_sub(MARGIN).as_secs_f64());
                    progress.send(started.elapsed().as_secs_f64(), total, &page.last_line).await;
                }
                continue;
            }
            item = following.next() => item,
        };
        match item {
            None => return Ended::Done,
            Some(Err(error)) => return Ended::Failed(error),
            Some(Ok(item)) => page.add(item, before.as_deref()),
        }
        if page.done.is_some() {
            return Ended::Done;
        }
        if until == Until::Full && page.is_full() {
            return Ended::Full;
        }
        before = following.offset();
    }
}

/// The result after output was read.
async fn conclude(
    call: &ToolCall,
    execution: &Detached,
    mut page: OutputPage,
    note: Option<String>,
) -> Result<ToolReply<Ran>, ToolFailure> {
    let mut notes: Vec<String> = note.into_iter().collect();
    let mut state = ExecutionState::Exited;
    if page.done.as_ref().is_none_or(|done| done.exit_code.is_none()) {
        let view = match execution.status().await {
            Ok(view) => view,
            Err(error) => return Err(call.failed(execution.sandbox(), error).await),
        };
        state = view.state;
        notes.extend(view.message);
        if state == ExecutionState::Running {
            page.next.get_or_insert_default();
        } else if page.done.is_none() {
            page.done = Some(Done {
                exit_code: view.exit_code,
                duration_ms: view.duration_ms.unwrap_or(0),
                signal: view.signal,
                reason: view.reason,
                message: None,
            });
        }
    } else if let Some(done) = &mut page.done {
        // Why an exit code is that of a killed program.
        notes.extend(done.message.take());
    }
    Ok(finish(Ran::new(execution, page, state), notes))
}

impl Ran {
    fn new(execution: &Detached, page: OutputPage, state: ExecutionState) -> Self {
        let tail = page.tail();
        let done = page.done.as_ref();
        Self {
            sandbox_id: execution.sandbox().id().to_string(),
            execution_id: execution.id().to_string(),
            state,
            exit_code: done.and_then(|done| done.exit_code),
            signal: done.and_then(|done| done.signal.clone()),
            timed_out: done.is_some_and(|done| done.reason == Some(EndReason::Timeout)),
            duration_ms: done.map(|done| done.duration_ms),
            tail,
            omitted_bytes: page.omitted_bytes,
            dropped_bytes: page.dropped_bytes,
            cursor: page.next.map(|offset| Cursor::of(execution, Some(offset)).to_string()),
            stdout: page.stdout,
            stderr: page.stderr,
        }
    }

    /// The output and the result, as the model reads them.
    fn texts(&self) -> Vec<String> {
        let mut texts = vec![self.stdout.clone()];
        if !self.stderr.is_empty() {
            texts.push(format!("[stderr]\n{}", self.stderr));
        }
        if let Some(tail) = &self.tail {
            texts.push(format!("[{} bytes follow; they end with:]\n{tail}", self.omitted_bytes));
        }
        let mut status = match (self.state, self.exit_code, &self.signal) {
            (ExecutionState::Running, ..) => "The command is running.".to_owned(),
            (ExecutionState::Lost, ..) => {
                "The command ended with its sandbox; its exit code is unknown.".to_owned()
            }
            (_, Some(code), _) => format!("Exit code {code}."),
            (_, None, Some(_)) if self.timed_out => {
                "The command was killed because of timeoutSeconds. For longer jobs set background to true."
                    .to_owned()
            }
            (_, None, Some(signal)) => format!("Killed by {signal}."),
            (_, None, None) => "The command could not start.".to_owned(),
        };
        if self.dropped_bytes > 0 {
            status.push_str(&format!(" The service did not store {} bytes of output.", self.dropped_bytes));
        }
        if let Some(cursor) = &self.cursor {
            status.push_str(&format!(" To read on, call run_command with the cursor {cursor}"));
        }
        texts.push(status);
        texts
    }
}

fn finish(ran: Ran, notes: Vec<String>) -> ToolReply<Ran> {
    ToolReply::texts(ran.texts().into_iter().chain(notes), ran)
}

/// Kills the processes of a command.
async fn cancel(execution: Detached) {
    if let Err(error) = execution.cancel().await {
        tracing::debug!(%error, "cannot cancel an execution; its time limit ends it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_parsed_as_they_are_written() {
        for offset in [None, Some("12".to_owned()), Some("a@b/c".to_owned())] {
            let cursor = Cursor { sandbox: "sb_1".into(), execution: "ex_2".into(), offset };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        assert_eq!("no cursor".parse::<Cursor>(), Err(()));
    }

    fn ran(state: ExecutionState, exit_code: Option<i32>, signal: Option<&str>) -> Ran {
        Ran {
            sandbox_id: "sb_1".to_owned(),
            execution_id: "ex_2".to_owned(),
            state,
            exit_code,
            signal: signal.map(str::to_owned),
            timed_out: false,
            duration_ms: None,
            stdout: "out".to_owned(),
            stderr: String::new(),
            tail: None,
            omitted_bytes: 0,
            dropped_bytes: 0,
            cursor: None,
        }
    }

    #[test]
    fn the_model_reads_how_the_command_ended() {
        let status = |ran: Ran| ran.texts().pop().unwrap();
        for (state, exit_code, signal, text) in [
            (ExecutionState::Exited, Some(0), None, "Exit code 0."),
            (ExecutionState::Exited, Some(3), None, "Exit code 3."),
            (ExecutionState::Exited, None, Some("SIGKILL"), "Killed by SIGKILL."),
            (ExecutionState::Exited, None, None, "The command could not start."),
            (ExecutionState::Running, None, None, "The command is running."),
            (
                ExecutionState::Lost,
                None,
                Some("SIGKILL"),
                "The command ended with its sandbox; its exit code is unknown.",
            ),
        ] {
            assert_eq!(status(ran(state, exit_code, signal)), text);
        }
        let timed_out = Ran { timed_out: true, ..ran(ExecutionState::Exited, None, Some("SIGKILL")) };
        assert!(status(timed_out).contains("because of timeoutSeconds"));
        // The program has handled the signal.
        let handled = Ran { timed_out: true, ..ran(ExecutionState::Exited, Some(1), None) };
        assert_eq!(status(handled), "Exit code 1.");
    }

    #[test]
    fn the_parts_of_an_output_are_told_apart_and_the_rest_is_named() {
        let whole = Ran {
            stderr: "err".to_owned(),
            tail: Some("end".to_owned()),
            omitted_bytes: 9,
            dropped_bytes: 4,
            cursor: Some("sb_1/ex_2@3.0".to_owned()),
            ..ran(ExecutionState::Running, None, None)
        };
        let status = "The command is running. The service did not store 4 bytes of output. \
                      To read on, call run_command with the cursor sb_1/ex_2@3.0";
        let expected = ["out", "[stderr]\nerr", "[9 bytes follow; they end with:]\nend", status];
        assert_eq!(whole.texts(), expected);
        assert_eq!(ran(ExecutionState::Exited, Some(0), None).texts().len(), 2);
    }

    #[test]
    fn an_empty_offset_is_the_beginning() {
        let cursor: Cursor = "sb_1/ex_2@".parse().unwrap();
        assert_eq!((cursor.offset.as_deref(), cursor.to_string().as_str()), (None, "sb_1/ex_2"));
        for (text, sandbox, execution) in [("/", "", ""), ("a/b/c", "a", "b/c")] {
            let cursor: Cursor = text.parse().unwrap();
            assert_eq!((cursor.sandbox.as_str(), cursor.execution.as_str()), (sandbox, execution));
        }
    }
}
