//! Reading an execution's output from any position on, while it grows and after its end.

use bytes::Bytes;
use futures_util::Stream;
use guest_proto::Channel;
use rules::{OutputPosition, TimeMs};

use super::types::ExecutionStatus;
use crate::error::EngineError;

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    Output {
        channel: Channel,
        bytes: Bytes,
        at: TimeMs,
        /// Behind these bytes.
        position: OutputPosition,
    },
    /// What was before this position is no more there.
    Dropped { position: OutputPosition },
    /// Nothing comes after it.
    Ended(ExecutionStatus),
}

/// Somebody's place in the output of an execution.
pub struct OutputReader {
    is_over: bool,
}

impl OutputReader {
    /// Waits for what comes next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Followed, EngineError> {
        Err(EngineError::Stopping)
    }

    /// The same as a stream, which ends after the end, or an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Followed, EngineError>> + Send {
        futures_util::stream::unfold(self, |mut reader| async move {
            if reader.is_over {
                return None;
            }
            let next = reader.next().await;
            reader.is_over = !matches!(next, Ok(Followed::Output { .. } | Followed::Dropped { .. }));
            Some((next, reader))
        })
    }
}
