//! The queue of the event uploader, for the `agent.*` and `cost.llm` events of a run. Its bounded length keeps callers from waiting and
//! memory from growing.

use api::bounds::EVENT_DATA_BYTES;
use api::{EventBody, EventKind, EventsRecorded, RunId, RuntimeEvent};
use hyper::Method;
use tokio::sync::{mpsc, oneshot};

use super::uploader::{Batch, EventSink, Message, upload};
use crate::transport::retry::Safety;
use crate::transport::{ApiCall, Transport};
use crate::{Error, Result};

/// Capacity of the queue, in events.
const QUEUE_MAX: usize = 4096;

/// The sending side of the queue. Clones share it.
#[derive(Clone)]
pub struct UploadQueue {
    queue: mpsc::Sender<Message>,
}

impl UploadQueue {
    /// Spawns the uploader, so it must be called within a Tokio runtime. The task ends with the last clone of the queue.
    pub fn start(transport: Transport, path: String) -> Self {
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(upload(Service { transport, path }, messages));
        Self { queue }
    }

    /// Queues an event of a kind that clients may upload. Returns an error if the queue is full.
    pub fn push(&self, event: &RuntimeEvent) -> Option<Error> {
        use EventKind::{AgentError, AgentThinking, AgentToolCall, AgentToolResult, CostLlm};
        if !matches!(event.kind, AgentThinking | AgentToolCall | AgentToolResult | AgentError | CostLlm) {
            return None;
        }
        let message = body(event).map_or_else(Message::Error, Message::Event);
        let full = self.queue.try_send(message).err()?;
        let why = match full {
            mpsc::error::TrySendError::Full(_) => format!("{QUEUE_MAX} events are queued"),
            mpsc::error::TrySendError::Closed(_) => "the Tokio runtime of the uploader has ended".to_owned(),
        };
        Some(Error::configuration(format!("an event {} was not uploaded: {why}", event.kind)))
    }

    /// Waits until all queued events are uploaded.
    pub async fn flush(&self) -> Result<()> {
        let over = || Error::configuration("the Tokio runtime of the uploader has ended");
        let (answer, answered) = oneshot::channel();
        self.queue.send(Message::Flush(answer)).await.map_err(|_| over())?;
        answered.await.map_err(|_| over())?.map_or(Ok(()), Err)
    }
}

fn body(event: &RuntimeEvent) -> Result<EventBody> {
    let run_id: RunId = event.run_id.parse().map_err(|why| {
        Error::configuration(format!("invalid run id '{}'", event.run_id.escape_debug())).caused_by(why)
    })?;
    let bytes = serde_json::to_vec(&event.data).map_or(0, |data| data.len());
    if bytes > EVENT_DATA_BYTES {
        let kind = event.kind;
        let message = format!(
            "an event {kind} was not uploaded: its data has {bytes} bytes, the limit is {EVENT_DATA_BYTES}"
        );
        return Err(Error::configuration(message));
    }
    Ok(EventBody { kind: event.kind, run_id, data: event.data.clone(), timestamp: Some(event.timestamp) })
}

/// The event endpoint of one sandbox.
struct Service {
    transport: Transport,
    path: String,
}

impl EventSink for Service {
    async fn send(&self, batch: &Batch) -> Result<()> {
        let call = ApiCall::new(Method::POST, &self.path, Safety::Repeatable).json(&batch.events)?;
        self.transport.json::<EventsRecorded>(call.key(&batch.key)?).await.map(drop)
    }
}
