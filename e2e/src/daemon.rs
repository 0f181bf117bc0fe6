//! An engine in a separate process that a test can kill: the program `victim`.
//!
//! Requests and responses are lines: `NUMBER VERB ARGUMENTS`, answered in any order by `NUMBER ok TEXT` or `NUMBER no TEXT`. The
//! first line of the output is `ready` with the result of recovery. The end of its input makes the victim shut down cleanly.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::IgnorePoison;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::layout::RigLayout;

const START_TIMEOUT: Duration = Duration::from_secs(150);
const STOP_TIMEOUT: Duration = Duration::from_secs(150);

/// The result of a victim's recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    pub running: usize,
    pub paused: usize,
    pub stopped: usize,
    pub orphans: usize,
    pub took_ms: u64,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    Ok(String),
    No(String),
    /// The victim died first; whether it executed the call is unknown.
    Lost,
}

/// A running victim.
pub struct Daemon {
    child: tokio::sync::Mutex<Child>,
    pid: Option<u32>,
    stdin: tokio::sync::Mutex<ChildStdin>,
    calls: Arc<Calls>,
    ready: watch::Receiver<Option<RecoverySummary>>,
    reader: tokio::sync::Mutex<JoinHandle<()>>,
    next: AtomicU64,
}

#[derive(Default)]
struct Calls(Mutex<Open>);

#[derive(Default)]
struct Open {
    waiting: HashMap<u64, oneshot::Sender<CallOutcome>>,
    closed: bool,
}

impl Calls {
    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().ignore_poison()
    }
}

impl Daemon {
    /// Starts a victim with this layout. It recovers first; see [`Daemon::ready`].
    pub fn start(program: &Path, layout: &RigLayout, pool: u32, slots: u32) -> Result<Self> {
        // starts: sandboxd
        let mut child = Command::new(program)
            .args([&layout.name, &pool.to_string(), &slots.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let stdin = child.stdin.take().context("the victim has no input")?;
        let stdout = child.stdout.take().context("the victim has no output")?;
        let calls = Arc::<Calls>::default();
        let (publish, ready) = watch::channel(None);
        let reader = tokio::spawn(read(stdout, Arc::clone(&calls), publish));
        let (pid, child, reader) = (child.id(), child.into(), reader.into());
        Ok(Self { child, pid, stdin: stdin.into(), calls, ready, reader, next: AtomicU64::new(1) })
    }

    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Waits until its recovery is over.
    pub async fn ready(&self) -> Result<RecoverySummary> {
        let mut ready = self.ready.clone();
        let found = tokio::time::timeout(START_TIMEOUT, ready.wait_for(Option::is_some)).await;
        let found = found
            .context("the victim is not ready in time")?
            .context("the victim died before it was ready")?;
        found.context("the victim did not report its recovery")
    }

    pub async fn call(&self, request: &str) -> CallOutcome {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (send, answer) = oneshot::channel();
        {
            let mut open = self.calls.open();
            if open.closed {
                return CallOutcome::Lost;
            }
            open.waiting.insert(number, send);
        }
        let line = format!("{number} {}\n", escape(request));
        if self.stdin.lock().await.write_all(line.as_bytes()).await.is_err() {
            return CallOutcome::Lost;
        }
        answer.await.unwrap_or(CallOutcome::Lost)
    }

    /// A call that must succeed.
    pub async fn expect_ok(&self, request: &str) -> Result<String> {
        match self.call(request).await {
            CallOutcome::Ok(text) => Ok(text),
            other => bail!("{request:?} ended with {other:?}"),
        }
    }

    /// Sends SIGKILL. Returns when the process has ended and all its responses are read; open calls end as `Lost`.
    pub async fn kill(&self) -> Result<()> {
        self.child.lock().await.kill().await?;
        let mut reader = self.reader.lock().await;
        Ok((&mut *reader).await?)
    }

    /// Stops it cleanly.
    pub async fn stop(self) -> Result<()> {
        drop(self.stdin);
        let mut child = self.child.lock().await;
        let status = tokio::time::timeout(STOP_TIMEOUT, child.wait())
            .await
            .context("the victim did not stop in time")??;
        if status.success() { Ok(()) } else { bail!("the victim ended with {status}") }
    }
}

async fn read(stdout: ChildStdout, calls: Arc<Calls>, publish: watch::Sender<Option<RecoverySummary>>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (head, rest) = line.split_once(' ').unwrap_or((&line, ""));
        if head == "ready" {
            publish.send_replace(parse_found(rest));
        } else if let Some((number, answer)) = parse_answer(head, rest)
            && let Some(waiting) = calls.open().waiting.remove(&number)
        {
            // The caller may have stopped waiting.
            let _ = waiting.send(answer);
        }
    }
    let mut open = calls.open();
    open.closed = true;
    open.waiting.clear();
}

fn parse_found(text: &str) -> Option<RecoverySummary> {
    let numbers: Vec<u64> = text.split(' ').map_while(|word| word.parse().ok()).collect();
    let at = |index: usize| numbers.get(index).and_then(|number| usize::try_from(*number).ok());
    Some(RecoverySummary {
        running: at(0)?,
        paused: at(1)?,
        stopped: at(2)?,
        orphans: at(3)?,
        took_ms: *numbers.get(4)?,
    })
}

fn parse_answer(number: &str, rest: &str) -> Option<(u64, CallOutcome)> {
    let (verdict, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let text = unescape(text);
    let answer = if verdict == "ok" { CallOutcome::Ok(text) } else { CallOutcome::No(text) };
    Some((number.parse().ok()?, answer))
}

/// Encodes any text as one line.
pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

pub fn unescape(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    text
}
