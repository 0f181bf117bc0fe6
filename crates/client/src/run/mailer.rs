//! Posts what a run's program says of itself (`agent.*`, `cost.llm`) to the events of a sandbox. A task of its own, so that nobody waits:
//! what is said meanwhile stands in a line of bounded length. The first fault is kept for whoever asks.

use api::{EventBody, EventKind, EventsRecorded, RunId, RuntimeEvent};
use hyper::Method;
use tokio::sync::{mpsc, oneshot};

use super::postman::{Batch, Letter, Recipient, deliver};
use crate::retry::Safety;
use crate::transport::{Call, Transport};
use crate::{Error, Result};

/// What may wait to be sent.
const LONGEST_LINE: usize = 4096;
/// The service's bound on the data of an event.
const LONGEST_DATA: usize = 16 << 10;

/// Where events are dropped in. Clones drop into the same one.
#[derive(Clone)]
pub struct Mailer {
    line: mpsc::Sender<Letter>,
}

impl Mailer {
    /// Begins a task, so this has to be called within a Tokio runtime. It ends with the last clone of the mailer.
    pub fn begin(transport: Transport, path: String) -> Self {
        let (line, letters) = mpsc::channel(LONGEST_LINE);
        tokio::spawn(deliver(Service { transport, path }, letters));
        Self { line }
    }

    /// Takes what a client may post. What finds no room is an error, told later.
    pub fn post(&self, event: &RuntimeEvent) -> Option<Error> {
        use EventKind::{AgentError, AgentThinking, AgentToolCall, AgentToolResult, CostLlm};
        if !matches!(event.kind, AgentThinking | AgentToolCall | AgentToolResult | AgentError | CostLlm) {
            return None;
        }
        let letter = body(event).map_or_else(Letter::Fault, Letter::Event);
        let full = self.line.try_send(letter).err()?;
        let why = match full {
            mpsc::error::TrySendError::Full(_) => format!("{LONGEST_LINE} events wait for the service"),
            mpsc::error::TrySendError::Closed(_) => "the runtime in which they are sent has ended".to_owned(),
        };
        Some(Error::configuration(format!("an event {} was not sent: {why}", event.kind)))
    }

    /// Waits until all before this is kept by the service.
    pub async fn sent(&self) -> Result<()> {
        let over = || Error::configuration("the runtime in which events are sent has ended");
        let (answer, answered) = oneshot::channel();
        self.line.send(Letter::Sent(answer)).await.map_err(|_| over())?;
        answered.await.map_err(|_| over())?.map_or(Ok(()), Err)
    }
}

fn body(event: &RuntimeEvent) -> Result<EventBody> {
    let run_id: RunId = event.run_id.parse().map_err(|why| {
        Error::configuration(format!("the run {:?} is none that a service keeps: {why}", event.run_id))
    })?;
    let bytes = serde_json::to_vec(&event.data).map_or(0, |data| data.len());
    if bytes > LONGEST_DATA {
        let kind = event.kind;
        let message = format!(
            "an event {kind} was not sent: its data has {bytes} bytes; a service keeps {LONGEST_DATA}"
        );
        return Err(Error::configuration(message));
    }
    Ok(EventBody { kind: event.kind, run_id, data: event.data.clone(), timestamp: Some(event.timestamp) })
}

/// The events of one sandbox.
struct Service {
    transport: Transport,
    path: String,
}

impl Recipient for Service {
    async fn take(&self, batch: &Batch) -> Result<()> {
        let call = Call::new(Method::POST, &self.path, Safety::Repeatable).json(&batch.events)?;
        self.transport.json::<EventsRecorded>(call.key(&batch.key)?).await.map(drop)
    }
}
