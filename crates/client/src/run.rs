//! Runs: what a program and its sandboxes do, as one stream of events with a common run id, for handlers, files and the service.
//!
//! Handlers are called in the task that records the event, and the event is written to the file before the call returns. Errors do not
//! interrupt the program: [`Run::finish`] returns the first file error, and [`Run::delivered`] the first upload error.

mod cost;
mod upload_queue;
mod uploader;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use api::{EventId, EventKind, RunId, RuntimeEvent, SandboxId, Timestamp};
use serde_json::{Map, Value, json};

pub use cost::LlmCost;

use crate::ids::random_id;
use crate::millis::ms;
use crate::transport::{ApiCall, Transport};
use crate::{Error, Result};
use upload_queue::UploadQueue;

/// The last event number of this process.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// A run of a program: an id and the receivers of its events. Clones share both.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
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
    inner: Arc<RunState>,
}

struct RunState {
    id: String,
    sinks: Mutex<Vec<Sink>>,
    file_error: Mutex<Option<io::Error>>,
    /// The first error of an event that did not enter the upload queue.
    unsent: Mutex<Option<Error>>,
}

#[derive(Clone)]
enum Sink {
    Handler(Arc<dyn Fn(&RuntimeEvent) + Send + Sync>),
    File(Arc<Mutex<File>>),
    Service(UploadQueue),
}

impl Run {
    /// A run with a new id.
    ///
    /// ```
    /// assert!(sandboxd_client::Run::new().id().starts_with("run_"));
    /// ```
    #[expect(clippy::new_without_default, reason = "each has an id of its own, which a default would hide")]
    pub fn new() -> Self {
        Self::with_id(random_id("run_"))
    }

    /// A run with the given id: 1 to 128 visible ASCII characters. Calls of sandboxes of a run with an invalid id fail.
    ///
    /// ```
    /// assert_eq!(sandboxd_client::Run::with_id("nightly-17").id(), "nightly-17");
    /// ```
    pub fn with_id(id: impl Into<String>) -> Self {
        let (sinks, file_error, unsent) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { inner: Arc::new(RunState { id: id.into(), sinks, file_error, unsent }) }
    }

    /// The `runId` of the events.
    ///
    /// ```
    /// assert_eq!(sandboxd_client::Run::with_id("a").id(), "a");
    /// ```
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Calls `handler` for every later event, in the task that records it.
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

    /// Appends every later event to a file, as one line of JSON. Creates the file if necessary.
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
        self.add(Sink::File(Arc::new(Mutex::new(file))));
        Ok(self)
    }

    /// Uploads to the events at `path`; see [`Run::to_service`].
    pub(crate) fn uploading_to(self, transport: Transport, path: String) -> Self {
        self.add(Sink::Service(UploadQueue::start(transport, path)));
        self
    }

    /// Waits until all events so far are uploaded, and returns the first upload error. The current batch is sent at once. If the service
    /// limits the rate, this takes up to 5 minutes.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let run = sandboxd_client::Run::new().to_service(&sandbox);
    /// run.thinking("which test fails?");
    /// run.delivered().await?;
    /// # Ok(()) });
    /// ```
    pub async fn delivered(&self) -> Result<()> {
        let mut result = Ok(());
        for sink in self.sinks() {
            if let Sink::Service(queue) = sink {
                result = result.and(queue.flush().await);
            }
        }
        let unsent = self.inner.unsent.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.and(unsent.map_or(Ok(()), Err))
    }

    /// Adds the run id to a call.
    pub(crate) fn with_run_id(&self, call: ApiCall) -> Result<ApiCall> {
        let id: std::result::Result<RunId, _> = self.inner.id.parse();
        let id = id.map_err(|why| {
            Error::configuration(format!("invalid run id '{}'", self.inner.id.escape_debug())).caused_by(why)
        })?;
        call.header("x-run-id", id.as_str())
    }

    fn sinks(&self) -> Vec<Sink> {
        self.inner.sinks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, sink: Sink) {
        self.inner.sinks.lock().unwrap_or_else(PoisonError::into_inner).push(sink);
    }

    /// Records a thought of a model.
    ///
    /// ```
    /// sandboxd_client::Run::new().thinking("the import is missing");
    /// ```
    pub fn thinking(&self, text: &str) {
        self.agent(EventKind::AgentThinking, json!({ "text": text }));
    }

    /// Records a tool call with its arguments.
    ///
    /// ```
    /// sandboxd_client::Run::new().tool_call("read_file", serde_json::json!({"path": "a.py"}));
    /// ```
    pub fn tool_call(&self, tool: &str, arguments: impl Into<Value>) {
        self.agent(EventKind::AgentToolCall, json!({ "tool": tool, "arguments": arguments.into() }));
    }

    /// Records the result of a tool call.
    ///
    /// ```
    /// sandboxd_client::Run::new().tool_result("read_file", "import os");
    /// ```
    pub fn tool_result(&self, tool: &str, result: impl Into<Value>) {
        self.agent(EventKind::AgentToolResult, json!({ "tool": tool, "result": result.into() }));
    }

    /// Records an error of the agent.
    ///
    /// ```
    /// sandboxd_client::Run::new().agent_error("the model answered no JSON");
    /// ```
    pub fn agent_error(&self, message: &str) {
        self.agent(EventKind::AgentError, json!({ "message": message }));
    }

    /// Records the cost of a model response.
    ///
    /// ```
    /// use sandboxd_client::{LlmCost, Run};
    /// let cost = LlmCost { model: "m-1".into(), input_tokens: 900, output_tokens: 50, amount: 0.004, currency: "USD".into() };
    /// Run::new().llm_cost(&cost);
    /// ```
    pub fn llm_cost(&self, cost: &LlmCost) {
        // Serializing numbers and strings cannot fail.
        self.agent(EventKind::CostLlm, serde_json::to_value(cost).unwrap_or_default());
    }

    fn agent(&self, kind: EventKind, data: Value) {
        let Value::Object(data) = data else { return };
        self.record(kind, None, data);
    }

    /// Records any event.
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
                Sink::Service(queue) => {
                    if let Some(error) = queue.push(&event) {
                        let mut unsent = self.inner.unsent.lock().unwrap_or_else(PoisonError::into_inner);
                        unsent.get_or_insert(error);
                    }
                }
                Sink::Handler(handler) => handler(&event),
                Sink::File(file) => {
                    if let Err(error) = write_line(file, &event) {
                        let mut file_error =
                            self.inner.file_error.lock().unwrap_or_else(PoisonError::into_inner);
                        file_error.get_or_insert(error);
                    }
                }
            }
        }
        event
    }

    /// Syncs the files to disk and returns the first error of writing them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// sandboxd_client::Run::new().to_file(dir.path().join("run.jsonl"))?.finish()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn finish(&self) -> io::Result<()> {
        if let Some(error) = self.inner.file_error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        for sink in &self.sinks() {
            if let Sink::File(file) = sink {
                file.lock().unwrap_or_else(PoisonError::into_inner).sync_all()?;
            }
        }
        Ok(())
    }
}

/// The time in µs, or one more than the last id: ids increase, also across processes of a run, and have the 16 digits of the
/// service's own until the year 2286.
fn next_id(now_us: u64) -> EventId {
    let next = |last: u64| Some(now_us.max(last + 1));
    let last = LAST_ID.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    EventId(last.map_or(now_us, |last| now_us.max(last + 1)))
}

/// One write per line, so that lines of several processes do not mix.
fn write_line(file: &Mutex<File>, event: &RuntimeEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_ascend_when_the_clock_goes_back() {
        let now = 1_795_000_000_000_000;
        let ids = [now, now, now - 1].map(next_id);
        assert!(ids[0] < ids[1] && ids[1] < ids[2] && ids[2].to_string().len() == 19, "{ids:?}");
    }

    #[test]
    fn an_unwritable_event_file_is_reported_at_the_end() {
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
