//! An errand among files, as its caller holds it. What it says is hostile: replies are bounded and checked one by one, and raw bytes
//! come as they are. Dropped before its end, it is ended inside, and what it had half made is taken away there.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use guest_proto::{Channel, Exit, FileReply, LAST_PIECE, MAX_PIECE, PREFIX, ProtoError};

use super::LinkError;
use super::command::{Command, CommandEvent, Stdin};
use crate::patience::Patience;

/// An errand says something every few seconds, or takes something; one that does neither for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Errand {
    command: Command,
    patience: Patience,
    stdin: Option<Stdin>,
    /// What came and was not read yet.
    buffer: BytesMut,
}

/// The next that an errand says.
pub enum Reply<T> {
    Said(T),
    /// It ended without another word. `whole`: as it should.
    Ended {
        whole: bool,
    },
}

impl Errand {
    pub(super) fn new(mut command: Command, patience: Patience) -> Self {
        let stdin = command.take_stdin();
        let patience = patience.of(PATIENCE);
        Self { command, patience, stdin, buffer: BytesMut::new() }
    }

    /// The next reply, as `read` owns it. Dropping the future loses nothing.
    pub async fn reply<T>(
        &mut self,
        read: impl FnOnce(&FileReply<'_>) -> Result<T, ProtoError>,
    ) -> Result<Reply<T>, LinkError> {
        loop {
            if let Some(end) = guest_proto::split_reply(&self.buffer)? {
                let said = read(&guest_proto::decode_reply(&self.buffer[PREFIX..end])?)?;
                self.buffer.advance(end);
                return Ok(Reply::Said(said));
            }
            match self.more().await? {
                Reply::Said(bytes) => self.buffer.extend_from_slice(&bytes),
                Reply::Ended { whole } => return Ok(Reply::Ended { whole: whole && self.buffer.is_empty() }),
            }
        }
    }

    /// The next raw bytes. Dropping the future loses nothing.
    pub async fn bytes(&mut self) -> Result<Reply<Bytes>, LinkError> {
        if !self.buffer.is_empty() {
            return Ok(Reply::Said(self.buffer.split().freeze()));
        }
        self.more().await
    }

    async fn more(&mut self) -> Result<Reply<Bytes>, LinkError> {
        match self.patience.wait(self.command.next()).await.map_err(LinkError::Silent)? {
            CommandEvent::Output(Channel::Stdout, bytes) => Ok(Reply::Said(bytes)),
            CommandEvent::Output(Channel::Stderr, _) => {
                Err(LinkError::Unexpected { wanted: "an errand's output", got: "another channel" })
            }
            CommandEvent::Exited { exit, .. } => Ok(Reply::Ended { whole: exit == Exit::Code(0) }),
            CommandEvent::Lost => Err(LinkError::Closed),
        }
    }

    /// Feeds it. False when it takes no more: then it has said why.
    pub async fn feed(&mut self, bytes: &[u8]) -> Result<bool, LinkError> {
        for piece in bytes.chunks(MAX_PIECE) {
            // In one frame: a frame of four bytes costs as much as a large one.
            let mut framed = Vec::with_capacity(PREFIX + piece.len());
            framed.extend_from_slice(&guest_proto::piece_header(piece.len()));
            framed.extend_from_slice(piece);
            if !self.write(&framed).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Says that all was fed. Without it nothing comes of what was.
    pub async fn finish(&mut self) -> Result<bool, LinkError> {
        self.write(&LAST_PIECE).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<bool, LinkError> {
        let Some(stdin) = &mut self.stdin else { return Ok(false) };
        match self.patience.wait(stdin.write_all(bytes)).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(LinkError::Closed)) => Ok(false),
            Ok(Err(error)) => Err(error),
            Err(silent) => Err(LinkError::Silent(silent)),
        }
    }

    /// Keeps something until the errand has ended, or until this is dropped.
    pub fn hold(&self, held: impl std::any::Any + Send) {
        self.command.hold(held);
    }
}
