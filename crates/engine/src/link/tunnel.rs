//! A TCP connection into the sandbox, carried by the agent. Each way may end on its own.

use std::sync::Arc;

use bytes::Bytes;
use guest_proto::ToGuest;

use super::op::{Incoming, Op};
use super::{Agent, LinkError};

pub struct Tunnel {
    agent: Agent,
    number: u64,
    op: Arc<Op>,
}

impl Tunnel {
    pub(super) fn new(agent: Agent, number: u64, op: Arc<Op>) -> Self {
        Self { agent, number, op }
    }

    /// The next bytes from inside; `None` at their end. Dropping the future loses nothing.
    pub async fn read(&self) -> Result<Option<Bytes>, LinkError> {
        let (incoming, due) = self.op.next().await;
        if let Some((channel, bytes)) = due {
            self.agent.inner.send(&ToGuest::Credit { op: self.number, channel, bytes })?;
        }
        match incoming {
            Incoming::Bytes(_, bytes) => Ok(Some(bytes)),
            Incoming::Eof => Ok(None),
            Incoming::Refused(kind, message) => Err(LinkError::Refused { kind, message }),
            Incoming::Exited(..) => Err(LinkError::Unexpected { wanted: "bytes", got: "exited" }),
            Incoming::Lost => Err(LinkError::Closed),
        }
    }

    /// Sends bytes as fast as the other side takes them.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), LinkError> {
        self.agent.inner.feed(self.number, &self.op, bytes).await
    }

    /// Says that nothing more will be sent; reading goes on.
    pub fn finish(&self) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Eof { op: self.number })
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.agent.inner.forget(self.number);
        // A lost link has closed it already.
        let _ = self.agent.inner.send(&ToGuest::Close { op: self.number });
    }
}
