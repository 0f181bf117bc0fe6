//! The event uploader: the task that sends queued events in batches. A single event is sent at once; after a batch the next one waits for
//! [`BATCH_INTERVAL`], unless it is full or a caller flushes, because each request counts against the rate limit of the key.
//!
//! A batch that is rejected because of the rate limit is retried after the requested delay, for some minutes. A batch that fails
//! otherwise is lost. The next flush returns the first error.

use std::time::Duration;

use api::EventBody;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ids::random_id;
use crate::{Code, Error, Result};

/// Time between two batches. By default a key may write 60 times a minute, for all purposes.
const BATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Limit for retries of a rate-limited batch.
const RETRY_BUDGET: Duration = Duration::from_secs(300);
/// Delay between two attempts if the service names none.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// The service's limit for one request.
const BATCH_EVENTS_MAX: usize = 100;
/// The service's limit for a body is 256 KiB, including the envelope.
const BATCH_BYTES_MAX: usize = 200 << 10;

/// A message to the uploader.
pub enum Message {
    Event(EventBody),
    /// Replied to when everything before it is sent, with the first error since the last flush.
    Flush(oneshot::Sender<Option<Error>>),
    Error(Error),
}

/// Events of one request, with an `Idempotency-Key` that makes retries safe.
pub struct Batch {
    pub events: Vec<EventBody>,
    pub key: String,
}

/// The destination of batches.
pub trait EventSink: Send + Sync {
    fn send(&self, batch: &Batch) -> impl Future<Output = Result<()>> + Send;
}

/// Runs until all senders are dropped.
pub async fn upload(sink: impl EventSink, messages: mpsc::Receiver<Message>) {
    EventUploader { sink, messages, first_error: None, not_before: Instant::now() }.work().await;
}

struct EventUploader<R> {
    sink: R,
    messages: mpsc::Receiver<Message>,
    first_error: Option<Error>,
    /// When a batch that is neither full nor flushed may be sent.
    not_before: Instant,
}

impl<R: EventSink> EventUploader<R> {
    async fn work(&mut self) {
        let mut held: Option<Message> = None;
        loop {
            let Some(message) = (match held.take() {
                Some(message) => Some(message),
                None => self.messages.recv().await,
            }) else {
                return;
            };
            match message {
                Message::Error(error) => self.record_error(error),
                // The caller may be gone.
                Message::Flush(answer) => drop(answer.send(self.first_error.take())),
                Message::Event(event) => {
                    let events;
                    (events, held) = self.collect(event).await;
                    let batch = Batch { events, key: random_id("key_") };
                    if let Err(error) = self.post(&batch).await {
                        self.record_error(error);
                    }
                    self.not_before = Instant::now() + BATCH_INTERVAL;
                }
            }
        }
    }

    fn record_error(&mut self, error: Error) {
        self.first_error.get_or_insert(error);
    }

    /// The batch that starts with an event, and the message after it, if one was received.
    async fn collect(&mut self, first: EventBody) -> (Vec<EventBody>, Option<Message>) {
        let mut bytes = size(&first);
        let mut events = vec![first];
        while events.len() < BATCH_EVENTS_MAX {
            // Queued events are taken even if the time is over.
            match timeout_at(self.not_before, self.messages.recv()).await {
                Ok(Some(Message::Event(event))) if bytes + size(&event) <= BATCH_BYTES_MAX => {
                    bytes += size(&event);
                    events.push(event);
                }
                Ok(Some(Message::Error(error))) => self.record_error(error),
                Ok(Some(other)) => return (events, Some(other)),
                Ok(None) | Err(_) => break,
            }
        }
        (events, None)
    }

    async fn post(&self, batch: &Batch) -> Result<()> {
        let begin = Instant::now();
        loop {
            let Err(error) = self.sink.send(batch).await else { return Ok(()) };
            let pause = error.retry_after().unwrap_or(DEFAULT_RETRY_AFTER).max(RETRY_AFTER_MIN);
            if error.code() != Code::RateLimited || begin.elapsed() + pause > RETRY_BUDGET {
                return Err(error);
            }
            sleep(pause).await;
        }
    }
}

fn size(event: &EventBody) -> usize {
    serde_json::to_vec(event).map_or(0, |json| json.len())
}

#[cfg(test)]
mod tests;
