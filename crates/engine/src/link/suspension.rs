//! A link that continues on another stream. In between nothing is on its way, so the processes inside can be stored: a copy of them
//! has no part of a frame, and the source loses none.

use std::sync::Arc;
use std::time::Duration;

use base::IgnorePoison;
use driver::ByteStream;
use guest_proto::{SUSPEND_SINCE, ToGuest};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use super::{Agent, FrameQueue, Inner, LinkError, OutgoingFrame, io};

/// A link without a stream. Its operations wait. Dropping it ends the link.
pub struct Suspended {
    agent: Agent,
    /// Frames for the next stream.
    queue: Option<FrameQueue>,
}

impl Drop for Suspended {
    fn drop(&mut self) {
        if self.queue.is_some() {
            self.agent.inner.end();
        }
    }
}

impl Agent {
    /// Suspends the link: both sides have received everything that the other one has sent. The agent closes its stream or loses it,
    /// and connects again.
    pub async fn suspend(&self, timeout: Duration) -> Result<Suspended, LinkError> {
        if self.inner.version < SUSPEND_SINCE {
            return Err(LinkError::TooOld);
        }
        let (suspending, queue) = oneshot::channel();
        *self.inner.suspending.lock().ignore_poison() = Some(suspending);
        let mut head = Vec::new();
        guest_proto::encode_to_guest(&ToGuest::Suspend, &mut head)?;
        self.inner.queue(OutgoingFrame { head, payload: Vec::new(), is_last: true })?;
        match tokio::time::timeout(timeout, queue).await {
            Ok(Ok(queue)) => Ok(Suspended { agent: self.clone(), queue: Some(queue) }),
            Ok(Err(_)) => Err(LinkError::Closed),
            Err(_) => {
                self.inner.end();
                Err(LinkError::Silent(timeout))
            }
        }
    }
}

impl Suspended {
    /// Continues the link on a new stream.
    pub async fn resume(mut self, mut stream: Box<dyn ByteStream>) -> Result<(), LinkError> {
        let mut frame = Vec::new();
        guest_proto::encode_to_guest(&ToGuest::Continue, &mut frame)?;
        stream.write_all(&frame).await?;
        if let Some(queue) = self.queue.take() {
            let Agent { inner, _guard: guard } = &self.agent;
            io::spawn(stream, Arc::clone(inner), queue, guard.0.subscribe());
        }
        Ok(())
    }
}

impl Inner {
    /// Who waits for a suspension learns that there is none.
    pub(super) fn stop_suspending(&self) {
        self.suspending.lock().ignore_poison().take();
    }

    pub(super) fn is_suspending(&self) -> bool {
        self.suspending.lock().ignore_poison().is_some()
    }

    /// The stream has ended as agreed.
    pub(super) fn suspended(&self, queue: FrameQueue) {
        let suspending = self.suspending.lock().ignore_poison().take();
        // Nobody may wait any more.
        if suspending.is_none_or(|suspending| suspending.send(queue).is_err()) {
            self.end();
        }
    }
}
