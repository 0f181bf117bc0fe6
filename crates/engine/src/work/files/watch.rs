//! The watch of a directory: events as they happen, or on request all events up to now.
//!
//! The agent's process that watches holds events in a bounded queue of the kernel while nobody reads them. If it overflows, a
//! [`WatchEvent::Overflow`] takes the place of the lost events.

use bytes::Bytes;
use guest_proto::WatchEventKind;

use crate::error::EngineError;
use crate::work::files::{FileOperation, FileResponse, unexpected};

/// Most events that [`Watch::poll`] returns. The rest stays for the next call.
const MAX_POLLED: usize = 65_536;

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// `name` is relative to the watched directory; empty for that directory itself.
    Changed { kind: WatchEventKind, name: Vec<u8> },
    /// Events were lost.
    Overflow,
}

/// A watch. Dropping it ends it. It ends by itself when the directory is deleted, when the sandbox is paused to disk or terminated,
/// and when the daemon stops.
pub struct Watch {
    operation: FileOperation,
    /// Requests to [`Watch::poll`] whose answer has not arrived, because their caller stopped waiting.
    unanswered: u32,
}

impl Watch {
    /// Waits until the watch is active.
    pub(crate) async fn begin(mut operation: FileOperation) -> Result<Self, EngineError> {
        match operation.next_response().await? {
            FileResponse::Watching => Ok(Self { operation, unanswered: 0 }),
            _ => Err(unexpected()),
        }
    }

    /// Waits for the next event. `None` if the directory was deleted. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>, EngineError> {
        loop {
            match self.operation.next_or_end().await? {
                None => return Ok(None),
                Some(FileResponse::Synced) if self.unanswered > 0 => self.unanswered -= 1,
                Some(response) => return event(response).map(Some),
            }
        }
    }

    /// The events since the last call, including those of all operations that ended before this call. The flag is false if the
    /// directory was deleted.
    pub async fn poll(&mut self) -> Result<(Vec<WatchEvent>, bool), EngineError> {
        let mut events = Vec::new();
        let is_asked = self.operation.send_upload([Bytes::from_static(&[0])].into()).await?;
        self.unanswered += u32::from(is_asked);
        while events.len() < MAX_POLLED {
            match self.operation.next_or_end().await? {
                None => return Ok((events, false)),
                Some(FileResponse::Synced) if self.unanswered > 0 => {
                    self.unanswered -= 1;
                    if self.unanswered == 0 {
                        break;
                    }
                }
                Some(response) => events.push(event(response)?),
            }
        }
        Ok((events, true))
    }
}

fn event(response: FileResponse) -> Result<WatchEvent, EngineError> {
    match response {
        FileResponse::Changed(kind, name) => Ok(WatchEvent::Changed { kind, name }),
        FileResponse::Overflow => Ok(WatchEvent::Overflow),
        _ => Err(unexpected()),
    }
}
