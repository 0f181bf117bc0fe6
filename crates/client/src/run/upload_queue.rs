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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, run: &str, text_bytes: usize) -> RuntimeEvent {
        let mut event: RuntimeEvent = serde_json::from_value(serde_json::json!({
            "id": "ev_0000000000000001", "timestamp": "2023-11-14T22:13:20Z", "type": "agent.thinking",
            "sandboxId": "", "runId": run, "data": { "text": "x".repeat(text_bytes) },
        }))
        .unwrap();
        event.kind = kind;
        event
    }

    fn queue(capacity: usize) -> (UploadQueue, mpsc::Receiver<Message>) {
        let (queue, messages) = mpsc::channel(capacity);
        (UploadQueue { queue }, messages)
    }

    #[test]
    fn only_the_kinds_that_clients_may_post_are_uploaded() {
        let (queue, mut messages) = queue(EventKind::ALL.len());
        for kind in EventKind::ALL {
            assert!(queue.push(&event(kind, "run", 1)).is_none(), "{kind}");
        }
        let mut posted = Vec::new();
        while let Ok(Message::Event(event)) = messages.try_recv() {
            posted.push(event.kind);
        }
        assert_eq!(posted, EventKind::POSTED);
    }

    #[test]
    fn a_full_queue_and_an_ended_uploader_are_told_apart() {
        let (queue, messages) = queue(1);
        let thinking = event(EventKind::AgentThinking, "run", 1);
        assert!(queue.push(&thinking).is_none());
        let full = queue.push(&thinking).unwrap();
        assert!(full.message().ends_with("4096 events are queued"), "{full}");
        drop(messages);
        let ended = queue.push(&thinking).unwrap();
        assert!(ended.message().contains("runtime of the uploader has ended"), "{ended}");
    }

    #[test]
    fn an_event_that_the_service_would_refuse_is_an_error_of_the_next_flush() {
        // `{"text":""}` has 11 bytes.
        let largest = EVENT_DATA_BYTES - 11;
        assert!(body(&event(EventKind::CostLlm, "run", largest)).is_ok());
        let too_large = body(&event(EventKind::CostLlm, "run", largest + 1)).unwrap_err();
        assert!(too_large.message().contains("16385 bytes, the limit is 16384"), "{too_large}");
        for run in ["", "a b", "ü"] {
            let error = body(&event(EventKind::CostLlm, run, 1)).unwrap_err();
            assert!(error.message().contains("invalid run id"), "{error}");
        }
        let (queue, mut messages) = queue(1);
        assert!(queue.push(&event(EventKind::CostLlm, "a b", 1)).is_none());
        assert!(matches!(messages.try_recv(), Ok(Message::Error(_))));
    }
}
