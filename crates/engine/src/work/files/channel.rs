//! The channel of one file operation: requests and content to the agent's file service, replies and content back.
//!
//! The agent is untrusted: each reply is bounded and checked. Dropping the channel before the operation ends aborts the
//! operation, and the agent removes partial results.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use guest_proto::{Channel, Exit, FileReply, LAST_PIECE, PREFIX, ProtoError};

use crate::link::{Command, CommandEvent, LinkError, Stdin};
use crate::work::agent_timeout::AgentTimeout;

/// The agent makes progress every few seconds. An operation without progress for this long has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct FileChannel {
    command: Command,
    timeout: AgentTimeout,
    stdin: Option<Stdin>,
    /// Received and not yet consumed.
    buffer: BytesMut,
}

/// The result of a read from the channel.
pub enum ChannelRead<T> {
    Data(T),
    /// The operation ended. `whole`: with success and without trailing bytes.
    Ended {
        whole: bool,
    },
}

impl FileChannel {
    pub fn new(mut command: Command, timeout: AgentTimeout) -> Self {
        let stdin = command.take_stdin();
        let timeout = timeout.with_duration(TIMEOUT);
        Self { command, timeout, stdin, buffer: BytesMut::new() }
    }

    /// Waits for the next reply and converts it with `read`. Cancel safe.
    pub async fn reply<T>(
        &mut self,
        read: impl FnOnce(&FileReply<'_>) -> Result<T, ProtoError>,
    ) -> Result<ChannelRead<T>, LinkError> {
        loop {
            if let Some(end) = guest_proto::split_reply(&self.buffer)? {
                let reply = read(&guest_proto::decode_reply(&self.buffer[PREFIX..end])?)?;
                self.buffer.advance(end);
                return Ok(ChannelRead::Data(reply));
            }
            match self.read().await? {
                ChannelRead::Data(bytes) => self.buffer.extend_from_slice(&bytes),
                ChannelRead::Ended { whole } => {
                    return Ok(ChannelRead::Ended { whole: whole && self.buffer.is_empty() });
                }
            }
        }
    }

    /// Waits for the next raw bytes. Cancel safe.
    pub async fn bytes(&mut self) -> Result<ChannelRead<Bytes>, LinkError> {
        if !self.buffer.is_empty() {
            return Ok(ChannelRead::Data(self.buffer.split().freeze()));
        }
        self.read().await
    }

    async fn read(&mut self) -> Result<ChannelRead<Bytes>, LinkError> {
        match self.timeout.wait(self.command.next()).await.map_err(LinkError::Silent)? {
            CommandEvent::Output(Channel::Stdout, bytes) => Ok(ChannelRead::Data(bytes)),
            CommandEvent::Output(Channel::Stderr, _) => {
                Err(LinkError::Unexpected { wanted: "output of a file operation", got: "another channel" })
            }
            CommandEvent::Exited { exit, .. } => Ok(ChannelRead::Ended { whole: exit == Exit::Code(0) }),
            CommandEvent::Lost => Err(LinkError::Closed),
        }
    }

    /// Sends content, in any number of parts. False if the operation accepts no more; its next reply has the reason.
    pub async fn send_upload(&mut self, parts: VecDeque<Bytes>) -> Result<bool, LinkError> {
        let Some(stdin) = &mut self.stdin else { return Ok(false) };
        is_accepted(self.timeout.wait(stdin.write_pieces(parts)).await)
    }

    /// Marks the content as complete. Without this call the agent discards the upload.
    pub async fn finish(&mut self) -> Result<bool, LinkError> {
        let Some(stdin) = &mut self.stdin else { return Ok(false) };
        is_accepted(self.timeout.wait(stdin.write_all(&LAST_PIECE)).await)
    }

    /// Drops `held` when the operation has ended, or when this channel is dropped.
    pub fn release_at_end(&self, held: impl std::any::Any + Send) {
        self.command.release_at_end(held);
    }
}

fn is_accepted(written: Result<Result<(), LinkError>, Duration>) -> Result<bool, LinkError> {
    match written {
        Ok(Ok(())) => Ok(true),
        Ok(Err(LinkError::Closed)) => Ok(false),
        Ok(Err(error)) => Err(error),
        Err(silent) => Err(LinkError::Silent(silent)),
    }
}
