//! The stream of a process's events.
//!
//! The response polls it, so a slow client delays only its own stream. Output waits in the execution log meanwhile; if the log
//! drops some of it, the stream ends with an error. When the sandbox is terminated the connection is cut without a last
//! envelope: clients take this for the end of the sandbox.

use std::io;

use bytes::Bytes;
use engine::{Channel, DaemonError, EngineError, Process, ProcessEnd, ProcessEvent};
use futures_util::{Stream, stream};
use tokio::time::Instant;

use super::messages::{KEEPALIVE_EVENT, data_event, end_event, start_event};
use crate::envd::connect::{CallOptions, Code, RpcError, end_of_stream, message};
use crate::envd::failure::Failure;
use crate::envd::target::Target;

/// A process and the position in its stream.
pub struct Output {
    target: Target,
    process: Process,
    options: CallOptions,
    deadline: Option<Instant>,
    is_terminal: bool,
    phase: Phase,
}

enum Phase {
    Starting,
    Running,
    /// Only the last envelope is left.
    Ending,
    Ended,
}

impl Output {
    pub fn new(target: Target, process: Process, options: CallOptions) -> Self {
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let is_terminal = process.status().terminal.is_some();
        Self { target, process, options, deadline, is_terminal, phase: Phase::Starting }
    }

    /// The envelopes. An error cuts the connection.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
        stream::unfold(self, |mut output| async move {
            let next = output.next().await?;
            if next.is_err() {
                output.phase = Phase::Ended;
            }
            Some((next, output))
        })
    }

    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        match std::mem::replace(&mut self.phase, Phase::Running) {
            Phase::Starting => Some(Ok(message(&start_event(self.process.status().pid)))),
            Phase::Running => Some(self.next_event().await),
            Phase::Ending => {
                self.phase = Phase::Ended;
                Some(Ok(end_of_stream(None)))
            }
            Phase::Ended => {
                self.phase = Phase::Ended;
                None
            }
        }
    }

    async fn next_event(&mut self) -> Result<Bytes, io::Error> {
        let deadline = self.deadline;
        let over = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            event = self.process.next() => event,
            () = over => return Ok(self.fail(&deadline_exceeded())),
            () = tokio::time::sleep(self.options.keepalive) => return Ok(message(KEEPALIVE_EVENT)),
        };
        match event {
            Ok(ProcessEvent::Output(channel, bytes)) => {
                Ok(message(&data_event(channel, self.is_terminal, &bytes)))
            }
            Ok(ProcessEvent::Dropped) => Ok(self.fail(&RpcError::new(
                Code::DataLoss,
                "output was dropped because it was not read in time; the process is still running",
            ))),
            Ok(ProcessEvent::Ended(end)) => self.ended(&end).await,
            Err(EngineError::Daemon(DaemonError::Stopping)) => {
                Err(io::Error::other("the daemon is stopping"))
            }
            Err(error) => {
                let error = Failure::of(error).to_rpc();
                Ok(self.fail(&error.ok_or_else(|| io::Error::other("the sandbox is not running"))?))
            }
        }
    }

    async fn ended(&mut self, end: &ProcessEnd) -> Result<Bytes, io::Error> {
        let may_be_of_sandbox = match end {
            ProcessEnd::Signalled(name) => name == "SIGKILL",
            ProcessEnd::Lost(_) => true,
            ProcessEnd::Exited(_) | ProcessEnd::OutOfMemory { .. } | ProcessEnd::TimedOut => false,
        };
        if may_be_of_sandbox && !self.target.exists().await {
            return Err(io::Error::other("the sandbox was terminated"));
        }
        if let Some(event) = end_event(end) {
            self.phase = Phase::Ending;
            let mut events = message(&event).to_vec();
            // Their library for Python shows standard error only, not the error of the end.
            if let ProcessEnd::OutOfMemory { message: why, .. } = end {
                let note = format!("{why}\n");
                let note = message(&data_event(Channel::Stderr, self.is_terminal, note.as_bytes()));
                events.splice(0..0, note);
            }
            return Ok(events.into());
        }
        let error = match end {
            ProcessEnd::Lost(reason) => RpcError::new(Code::Internal, reason.as_str()),
            _ => deadline_exceeded(),
        };
        Ok(self.fail(&error))
    }

    /// The last envelope, with an error.
    fn fail(&mut self, error: &RpcError) -> Bytes {
        self.phase = Phase::Ended;
        end_of_stream(Some(error))
    }
}

fn deadline_exceeded() -> RpcError {
    RpcError::new(Code::DeadlineExceeded, "the deadline of the process is over")
}
