//! Reads the output of an execution from any position, during the execution and after it.
//!
//! A reader has at most one piece of the log in memory and reads the next one when that is consumed. The log keeps what the reader
//! has not read, so a slow reader slows the command once the log is full (`back_pressure`).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use guest_proto::Channel;
use rules::{OutputPosition, TimeMs};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::detached::back_pressure::AttachedReader;
use crate::detached::execution::{DetachedExecution, Progress};
use crate::detached::log::cursor::{Cursor, LogPiece, first_segment};
use crate::detached::status::ExecutionStatus;
use crate::error::{DaemonError, EngineError};

/// An item of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputEvent {
    Output {
        channel: Channel,
        bytes: Bytes,
        at: TimeMs,
        /// The position behind these bytes.
        position: OutputPosition,
    },
    /// Output before this position was dropped from the log.
    Dropped { position: OutputPosition },
    /// The last item.
    Ended(Box<ExecutionStatus>),
}

/// A reader with its position.
pub struct OutputReader {
    execution: Arc<DetachedExecution>,
    progress: watch::Receiver<Progress>,
    stopping: CancellationToken,
    attached: AttachedReader,
    cursor: CursorState,
    ready: VecDeque<LogPiece>,
    is_finished: bool,
}

/// The cursor, or the thread that reads with it.
enum CursorState {
    Idle(Cursor),
    Reading(JoinHandle<(Cursor, io::Result<VecDeque<LogPiece>>)>),
    Gone,
}

impl OutputReader {
    /// Starts at `from`, or at the end of the output if `from` is beyond it.
    pub(crate) fn new(
        execution: Arc<DetachedExecution>,
        from: OutputPosition,
        stopping: CancellationToken,
    ) -> Self {
        let progress = execution.progress.subscribe();
        let printed = progress.borrow().log.printed;
        let from = OutputPosition {
            stdout: from.stdout.min(printed.stdout),
            stderr: from.stderr.min(printed.stderr),
        };
        let first = first_segment(&progress.borrow().segments, from);
        let attached = AttachedReader::new(Arc::clone(&execution), first);
        let cursor = CursorState::Idle(Cursor::new(execution.dir.clone(), from));
        Self { execution, progress, stopping, attached, cursor, ready: VecDeque::new(), is_finished: false }
    }

    /// Waits for the next item. Cancel safe.
    pub async fn next(&mut self) -> Result<OutputEvent, EngineError> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Ok(match found {
                    LogPiece::Output { channel, bytes, at, position } => {
                        OutputEvent::Output { channel, bytes, at, position }
                    }
                    LogPiece::Dropped { position } => OutputEvent::Dropped { position },
                });
            }
            self.read().await?;
            if !self.ready.is_empty() {
                continue;
            }
            let progress = self.progress.borrow_and_update().clone();
            if self.begin(&progress) {
                continue;
            }
            if progress.log.end.is_some() {
                self.attached.finish();
                return Ok(OutputEvent::Ended(Box::new(self.execution.status())));
            }
            tokio::select! {
                // Cannot fail: this reader holds the execution.
                _ = self.progress.changed() => {}
                () = self.stopping.cancelled() => return Err(DaemonError::Stopping.into()),
            }
        }
    }

    /// Starts to read the next piece, if there is one. The last piece is consumed.
    fn begin(&mut self, progress: &Progress) -> bool {
        if let CursorState::Idle(cursor) = &self.cursor
            && let Some(segment) = cursor.segment()
        {
            self.attached.advance(segment);
        }
        match std::mem::replace(&mut self.cursor, CursorState::Gone) {
            CursorState::Idle(mut cursor) if !cursor.is_at(progress.end) => {
                let (segments, end) = (Arc::clone(&progress.segments), progress.end);
                let reading = tokio::task::spawn_blocking(move || {
                    let found = cursor.read(&segments, end);
                    (cursor, found)
                });
                self.cursor = CursorState::Reading(reading);
                true
            }
            cursor => {
                self.cursor = cursor;
                false
            }
        }
    }

    /// Waits for the piece that is being read.
    async fn read(&mut self) -> Result<(), EngineError> {
        let CursorState::Reading(reading) = &mut self.cursor else { return Ok(()) };
        let (cursor, found) = reading.await.map_err(|_| DaemonError::TaskLost)?;
        match found {
            Ok(found) => {
                self.cursor = CursorState::Idle(cursor);
                self.ready = found;
                Ok(())
            }
            // The log was removed with its sandbox or to make room, or is damaged. The reader gets the gap and then the end.
            Err(error) if self.progress.borrow().log.end.is_some() => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::error!(id = %self.execution.record.id, %error, "could not read the log of an execution");
                }
                self.ready.extend(cursor.rest_up_to(self.progress.borrow().log.printed));
                self.cursor = CursorState::Gone;
                Ok(())
            }
            // The segment was dropped before it was read, or the log was removed with its sandbox: the next progress tells.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.cursor = CursorState::Idle(cursor);
                tokio::select! {
                    _ = self.progress.changed() => Ok(()),
                    () = self.stopping.cancelled() => Err(EngineError::Daemon(DaemonError::Stopping)),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A stream of the items. It ends after [`OutputEvent::Ended`] or an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<OutputEvent, EngineError>> + Send {
        futures_util::stream::unfold(self, |mut reader| async move {
            if reader.is_finished {
                return None;
            }
            let next = reader.next().await;
            reader.is_finished =
                !matches!(next, Ok(OutputEvent::Output { .. } | OutputEvent::Dropped { .. }));
            Some((next, reader))
        })
    }
}
