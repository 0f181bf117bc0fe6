//! A TCP connection into the sandbox, carried by the agent. Each direction ends on its own.

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

    /// Waits for the next bytes from the sandbox; `None` at their end. Cancel safe.
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

    /// Sends bytes, waiting for credit from the agent.
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), LinkError> {
        self.agent.inner.send_data(self.number, &self.op, bytes).await
    }

    /// Closes the sending direction.
    pub fn finish(&self) -> Result<(), LinkError> {
        self.agent.inner.send(&ToGuest::Eof { op: self.number })
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.agent.inner.forget(self.number);
        // Fails only if the link is lost, which closes the connection as well.
        let _ = self.agent.inner.send(&ToGuest::Close { op: self.number });
    }
}
