//! The runtime library: what a program and its sandboxes do, as one stream of events under one id (2.10 and 6.3 of the
//! specification), to handlers, to files, and to the service.
//!
//! An event is told in the task that makes it, and is in the file before the call goes on. A file that cannot be written to
//! stops nothing: the first fault is kept for [`Run::finish`]; that of posting to the service for [`Run::delivered`].

mod cost;
mod mailer;
mod postman;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use api::{EventId, EventKind, RunId, RuntimeEvent, SandboxId, Timestamp};
use serde_json::{Map, Value, json};

pub use cost::LlmCost;

use crate::ids::made;
use crate::millis::ms;
use crate::transport::{Call, Transport};
use crate::{Error, Result};
use mailer::Mailer;

/// The last number that an event of this process has got.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// One run of a program: an id, and those who are told its events. Clones are the same run.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let dir = tempfile::tempdir()?;
/// # let file = dir.path().join("run.jsonl");
/// use sandboxd_client::{EventKind, Run};
/// let run = Run::new().to_file(&file)?.on_event(|event| println!("{} {}", event.timestamp, event.kind));
/// let sandbox = client.create("ubuntu:24.04").run(&run).await?;
/// run.tool_call("shell", serde_json::json!({"command": "true"}));
/// sandbox.execute("true").await?;
/// run.finish()?;
///
/// let lines = std::fs::read_to_string(&file)?;
/// let kinds: Vec<EventKind> = lines
///     .lines()
///     .map(|line| serde_json::from_str::<sandboxd_client::RuntimeEvent>(line).map(|event| event.kind))
///     .collect::<Result<_, _>>()?;
/// use EventKind::*;
/// assert_eq!(kinds, [SandboxCreated, SandboxStarted, AgentToolCall, ExecStarted, ExecCompleted]);
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Run {
    inner: Arc<Inner>,
}

struct Inner {
    id: String,
    sinks: Mutex<Vec<Sink>>,
    fault: Mutex<Option<io::Error>>,
    /// Of what did not even get into the line to the service.
    unsent: Mutex<Option<Error>>,
}

#[derive(Clone)]
enum Sink {
    Handler(Arc<dyn Fn(&RuntimeEvent) + Send + Sync>),
    Lines(Arc<Mutex<File>>),
    Service(Mailer),
}

impl Run {
    /// A run with a new id.
    ///
    /// ```
    /// assert!(sandboxd_client::Run::new().id().starts_with("run_"));
    /// ```
    #[expect(clippy::new_without_default, reason = "each has an id of its own, which a default would hide")]
    pub fn new() -> Self {
        Self::with_id(made("run_"))
    }

    /// A run that has its id from elsewhere: 1 to 128 visible ASCII characters. With another id the calls of its sandboxes
    /// are errors.
    ///
    /// ```
    /// assert_eq!(sandboxd_client::Run::with_id("nightly-17").id(), "nightly-17");
    /// ```
    pub fn with_id(id: impl Into<String>) -> Self {
        let (sinks, fault, unsent) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { inner: Arc::new(Inner { id: id.into(), sinks, fault, unsent }) }
    }

    /// The `runId` of its events.
    ///
    /// ```
    /// assert_eq!(sandboxd_client::Run::with_id("a").id(), "a");
    /// ```
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Calls `handler` with every event from now on, in the task that makes it.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// static SEEN: AtomicU32 = AtomicU32::new(0);
    /// let run = sandboxd_client::Run::new().on_event(|_| drop(SEEN.fetch_add(1, Relaxed)));
    /// run.thinking("which test fails?");
    /// assert_eq!(SEEN.load(Relaxed), 1);
    /// ```
    #[must_use]
    pub fn on_event(self, handler: impl Fn(&RuntimeEvent) + Send + Sync + 'static) -> Self {
        self.add(Sink::Handler(Arc::new(handler)));
        self
    }

    /// Appends every event from now on to a file, a line of JSON each. The file is made if it is not there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let run = sandboxd_client::Run::new().to_file(dir.path().join("run.jsonl"))?;
    /// run.thinking("…");
    /// # assert_eq!(std::fs::read_to_string(dir.path().join("run.jsonl"))?.lines().count(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn to_file(self, path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        self.add(Sink::Lines(Arc::new(Mutex::new(file))));
        Ok(self)
    }

    /// Posts to the events at `path`; see [`Run::to_service`].
    pub(crate) fn posting(self, transport: Transport, path: String) -> Self {
        self.add(Sink::Service(Mailer::begin(transport, path)));
        self
    }

    /// Waits until the service keeps all events that were to be posted so far, and tells the first fault of that. Nothing is gathered
    /// for longer then. Where the service refuses them for their rate, that takes as long as it asks for, 5 minutes at most.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// let run = sandboxd_client::Run::new().to_service(&sandbox);
    /// run.thinking("which test fails?");
    /// run.delivered().await?;
    /// # Ok(()) });
    /// ```
    pub async fn delivered(&self) -> Result<()> {
        let mut result = Ok(());
        for sink in self.sinks() {
            if let Sink::Service(mailer) = sink {
                result = result.and(mailer.sent().await);
            }
        }
        let unsent = self.inner.unsent.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.and(unsent.map_or(Ok(()), Err))
    }

    /// The same call as part of this run, for the service.
    pub(crate) fn named(&self, call: Call) -> Result<Call> {
        let id: std::result::Result<RunId, _> = self.inner.id.parse();
        let id = id.map_err(|why| {
            Error::configuration(format!("the run {:?} is none that a service keeps: {why}", self.inner.id))
        })?;
        call.header("x-run-id", id.as_str())
    }

    fn sinks(&self) -> Vec<Sink> {
        self.inner.sinks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, sink: Sink) {
        self.inner.sinks.lock().unwrap_or_else(PoisonError::into_inner).push(sink);
    }

    /// What a model thought.
    ///
    /// ```
    /// sandboxd_client::Run::new().thinking("the import is missing");
    /// ```
    pub fn thinking(&self, text: &str) {
        self.agent(EventKind::AgentThinking, json!({ "text": text }));
    }

    /// A tool that a model called, and with what.
    ///
    /// ```
    /// sandboxd_client::Run::new().tool_call("read_file", serde_json::json!({"path": "a.py"}));
    /// ```
    pub fn tool_call(&self, tool: &str, arguments: impl Into<Value>) {
        self.agent(EventKind::AgentToolCall, json!({ "tool": tool, "arguments": arguments.into() }));
    }

    /// What the tool answered.
    ///
    /// ```
    /// sandboxd_client::Run::new().tool_result("read_file", "import os");
    /// ```
    pub fn tool_result(&self, tool: &str, result: impl Into<Value>) {
        self.agent(EventKind::AgentToolResult, json!({ "tool": tool, "result": result.into() }));
    }

    /// What went wrong in the agent itself.
    ///
    /// ```
    /// sandboxd_client::Run::new().agent_error("the model answered no JSON");
    /// ```
    pub fn agent_error(&self, message: &str) {
        self.agent(EventKind::AgentError, json!({ "message": message }));
    }

    /// What an answer of a model cost.
    ///
    /// ```
    /// use sandboxd_client::{LlmCost, Run};
    /// let cost = LlmCost { model: "m-1".into(), input_tokens: 900, output_tokens: 50, amount: 0.004, currency: "USD".into() };
    /// Run::new().llm_cost(&cost);
    /// ```
    pub fn llm_cost(&self, cost: &LlmCost) {
        // Its fields are numbers and texts, which JSON has.
        self.agent(EventKind::CostLlm, serde_json::to_value(cost).unwrap_or_default());
    }

    fn agent(&self, kind: EventKind, data: Value) {
        let Value::Object(data) = data else { return };
        self.record(kind, None, data);
    }

    /// Any event, with data of the caller's.
    ///
    /// ```
    /// use sandboxd_client::{EventKind, Run};
    /// let data = [("path".to_owned(), "a.py".into())].into_iter().collect();
    /// let event = Run::with_id("a").record(EventKind::FileRead, None, data);
    /// assert_eq!((event.run_id.as_str(), event.data["path"].as_str()), ("a", Some("a.py")));
    /// ```
    pub fn record(
        &self,
        kind: EventKind,
        sandbox: Option<&SandboxId>,
        data: Map<String, Value>,
    ) -> RuntimeEvent {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let event = RuntimeEvent {
            id: next_id(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)),
            timestamp: Timestamp(ms(since)),
            kind,
            sandbox_id: sandbox.cloned(),
            run_id: self.inner.id.clone(),
            data,
        };
        for sink in &self.sinks() {
            match sink {
                Sink::Service(mailer) => {
                    if let Some(error) = mailer.post(&event) {
                        let mut unsent = self.inner.unsent.lock().unwrap_or_else(PoisonError::into_inner);
                        unsent.get_or_insert(error);
                    }
                }
                Sink::Handler(handler) => handler(&event),
                Sink::Lines(file) => {
                    if let Err(error) = write_line(file, &event) {
                        let mut fault = self.inner.fault.lock().unwrap_or_else(PoisonError::into_inner);
                        fault.get_or_insert(error);
                    }
                }
            }
        }
        event
    }

    /// Sees to it that the files are on disk, and tells the first fault of writing to them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// sandboxd_client::Run::new().to_file(dir.path().join("run.jsonl"))?.finish()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn finish(&self) -> io::Result<()> {
        if let Some(fault) = self.inner.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(fault);
        }
        for sink in &self.sinks() {
            if let Sink::Lines(file) = sink {
                file.lock().unwrap_or_else(PoisonError::into_inner).sync_all()?;
            }
        }
        Ok(())
    }
}

/// The time in µs, or one more than the last: ids of a run grow, also over several processes of it, and have the 16 digits of the
/// service's own until the year 2286.
fn next_id(now_us: u64) -> EventId {
    let next = |last: u64| Some(now_us.max(last + 1));
    let last = LAST_ID.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    EventId(last.map_or(now_us, |last| now_us.max(last + 1)))
}

/// One write, so that lines of several processes do not mix.
fn write_line(file: &Mutex<File>, event: &RuntimeEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_whatever_the_clock_does() {
        let now = 1_795_000_000_000_000;
        let ids = [now, now, now - 1].map(next_id);
        assert!(ids[0] < ids[1] && ids[1] < ids[2] && ids[2].to_string().len() == 19, "{ids:?}");
    }

    #[test]
    fn a_file_that_cannot_be_written_to_is_told_of_at_the_end() {
        let run = Run::new().to_file("/dev/full").unwrap();
        run.thinking("a");
        assert_eq!(run.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn two_runs_append_to_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("runs.jsonl");
        for id in ["a", "b"] {
            Run::with_id(id).to_file(&file).unwrap().thinking("x");
        }
        let text = std::fs::read_to_string(file).unwrap();
        let ids: Vec<String> =
            text.lines().map(|line| serde_json::from_str::<RuntimeEvent>(line).unwrap().run_id).collect();
        assert_eq!(ids, ["a", "b"]);
    }
}
