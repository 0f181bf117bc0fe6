//! The task behind a mailer: gathers what was said, and has it posted. What is said alone goes at once; after a post nothing goes for
//! a moment, but for a full batch and for whoever waits, because each counts against the rate of the key.
//!
//! A batch that is refused for that rate is kept and goes again when the service asks for it, for some minutes; one that fails
//! otherwise is lost. The first fault is kept for whoever asks.

use std::time::Duration;

use api::EventBody;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use crate::ids::made;
use crate::{Code, Error, Result};

/// From one post to the next. A key may write 60 times a minute, if its operator has not said otherwise, and has other things to do.
const PAUSE: Duration = Duration::from_secs(2);
/// How long a batch may be refused for its rate.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two tries, where the service names no time or none at all.
const TRY_AGAIN: Duration = Duration::from_secs(5);
const AT_LEAST: Duration = Duration::from_secs(1);
/// The service's bound on a post.
const MOST_AT_ONCE: usize = 100;
/// The service's bound on a body is 256 KiB, in which other parts of it need room too.
const MOST_BYTES: usize = 200 << 10;

/// What is dropped in.
pub enum Letter {
    Event(EventBody),
    /// Answered when all before it is sent, with the first fault since the last time.
    Sent(oneshot::Sender<Option<Error>>),
    Fault(Error),
}

/// What goes at once, under an `Idempotency-Key` of its own: twice is the same.
pub struct Batch {
    pub events: Vec<EventBody>,
    pub key: String,
}

/// Where it goes.
pub trait Recipient: Send + Sync {
    fn take(&self, batch: &Batch) -> impl Future<Output = Result<()>> + Send;
}

/// Delivers until nobody is left who could drop anything in.
pub async fn deliver(recipient: impl Recipient, letters: mpsc::Receiver<Letter>) {
    Postman { recipient, letters, fault: None, not_before: Instant::now() }.work().await;
}

struct Postman<R> {
    recipient: R,
    letters: mpsc::Receiver<Letter>,
    fault: Option<Error>,
    /// When what is neither full nor waited for may go.
    not_before: Instant,
}

impl<R: Recipient> Postman<R> {
    async fn work(&mut self) {
        let mut held: Option<Letter> = None;
        loop {
            let Some(letter) = (match held.take() {
                Some(letter) => Some(letter),
                None => self.letters.recv().await,
            }) else {
                return;
            };
            match letter {
                Letter::Fault(error) => self.note(error),
                // Who asked may have gone away.
                Letter::Sent(answer) => drop(answer.send(self.fault.take())),
                Letter::Event(event) => {
                    let events;
                    (events, held) = self.gathered(event).await;
                    let batch = Batch { events, key: made("key_") };
                    if let Err(error) = self.post(&batch).await {
                        self.note(error);
                    }
                    self.not_before = Instant::now() + PAUSE;
                }
            }
        }
    }

    fn note(&mut self, error: Error) {
        self.fault.get_or_insert(error);
    }

    /// What goes with the first, and what comes behind it, if that is known.
    async fn gathered(&mut self, first: EventBody) -> (Vec<EventBody>, Option<Letter>) {
        let mut bytes = size(&first);
        let mut events = vec![first];
        while events.len() < MOST_AT_ONCE {
            // What stands there already is taken also when the time is over.
            match timeout_at(self.not_before, self.letters.recv()).await {
                Ok(Some(Letter::Event(event))) if bytes + size(&event) <= MOST_BYTES => {
                    bytes += size(&event);
                    events.push(event);
                }
                Ok(Some(Letter::Fault(error))) => self.note(error),
                Ok(Some(other)) => return (events, Some(other)),
                Ok(None) | Err(_) => break,
            }
        }
        (events, None)
    }

    async fn post(&self, batch: &Batch) -> Result<()> {
        let begin = Instant::now();
        loop {
            let Err(error) = self.recipient.take(batch).await else { return Ok(()) };
            let pause = error.retry_after().unwrap_or(TRY_AGAIN).max(AT_LEAST);
            if error.code() != Code::RateLimited || begin.elapsed() + pause > PATIENCE {
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
