//! Writing to an execution, and being attached to it.

use super::reader::OutputReader;
use super::types::TerminalSize;
use crate::error::EngineError;
use crate::handle::Permit;

/// The way in. Clones are the same.
#[derive(Clone)]
pub struct Input {}

/// Somebody at a terminal, or at a command. Holds the sandbox awake.
pub struct Attachment {
    pub output: OutputReader,
    input: Input,
    _awake: Permit,
}

impl Attachment {
    pub fn input(&self) -> Input {
        self.input.clone()
    }
}

impl Input {
    /// Feeds bytes as fast as the command takes them.
    pub async fn write(&self, _bytes: &[u8]) -> Result<(), EngineError> {
        Err(EngineError::Stopping)
    }

    /// Says that nothing more comes; to a terminal by `^D`.
    pub async fn close(&self) -> Result<(), EngineError> {
        Err(EngineError::Stopping)
    }

    pub async fn resize(&self, _size: TerminalSize) -> Result<(), EngineError> {
        Err(EngineError::Stopping)
    }

    pub async fn signal(&self, _signal: i32) -> Result<(), EngineError> {
        Err(EngineError::Stopping)
    }
}
