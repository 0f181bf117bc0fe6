//! Reading an execution's output from any position on, while it grows and after its end.
//!
//! A reader holds one piece of the log in memory at most, and reads the next when that is taken: who reads slowly costs nothing, and
//! does not slow the command.

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

use crate::error::EngineError;
use crate::executions::ExecutionStatus;
use crate::kept::cursor::{Cursor, Found};
use crate::kept::execution::{Execution, Progress};

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
    execution: Arc<Execution>,
    progress: watch::Receiver<Progress>,
    stopping: CancellationToken,
    place: Place,
    ready: VecDeque<Found>,
    is_over: bool,
}

/// The cursor, or who reads with it.
enum Place {
    Here(Cursor),
    Reading(JoinHandle<(Cursor, io::Result<VecDeque<Found>>)>),
    Nowhere,
}

impl OutputReader {
    /// A position beyond what was printed is that of the end so far.
    pub(crate) fn new(execution: Arc<Execution>, from: OutputPosition, stopping: CancellationToken) -> Self {
        let progress = execution.progress.subscribe();
        let printed = progress.borrow().told.printed;
        let from = OutputPosition {
            stdout: from.stdout.min(printed.stdout),
            stderr: from.stderr.min(printed.stderr),
        };
        let place = Place::Here(Cursor::new(execution.dir.clone(), from));
        Self { execution, progress, stopping, place, ready: VecDeque::new(), is_over: false }
    }

    /// Waits for what comes next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Followed, EngineError> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Ok(match found {
                    Found::Output { channel, bytes, at, position } => {
                        Followed::Output { channel, bytes, at, position }
                    }
                    Found::Dropped { position } => Followed::Dropped { position },
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
            if progress.told.end.is_some() {
                return Ok(Followed::Ended(self.execution.status()));
            }
            tokio::select! {
                // The execution lives as long as we do.
                _ = self.progress.changed() => {}
                () = self.stopping.cancelled() => return Err(EngineError::Stopping),
            }
        }
    }

    /// Begins to read on, if there is more.
    fn begin(&mut self, progress: &Progress) -> bool {
        match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Here(mut cursor) if !cursor.is_at(progress.reach) => {
                let (segments, reach) = (Arc::clone(&progress.segments), progress.reach);
                let reading = tokio::task::spawn_blocking(move || {
                    let found = cursor.read(&segments, reach);
                    (cursor, found)
                });
                self.place = Place::Reading(reading);
                true
            }
            place => {
                self.place = place;
                false
            }
        }
    }

    /// Waits for what is being read.
    async fn read(&mut self) -> Result<(), EngineError> {
        let Place::Reading(reading) = &mut self.place else { return Ok(()) };
        let (cursor, found) = reading.await.map_err(|_| EngineError::TaskLost)?;
        match found {
            Ok(found) => {
                self.place = Place::Here(cursor);
                self.ready = found;
                Ok(())
            }
            // With its sandbox all of it went, or it was given up to make room for others, or it is damaged. Nothing more comes:
            // its reader is told of what it misses.
            Err(error) if self.progress.borrow().told.end.is_some() => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::error!(id = %self.execution.record.id, %error, "could not read what an execution printed");
                }
                self.ready.extend(cursor.rest_up_to(self.progress.borrow().told.printed));
                self.place = Place::Nowhere;
                Ok(())
            }
            // It was given up faster than it was read, or with its sandbox: either way there is more news of it to come.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.place = Place::Here(cursor);
                tokio::select! {
                    _ = self.progress.changed() => Ok(()),
                    () = self.stopping.cancelled() => Err(EngineError::Stopping),
                }
            }
            Err(error) => Err(error.into()),
        }
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
