//! The stream of a watch, polled by its response. A slow client delays only its own stream; the kernel's queue of the watch holds
//! events meanwhile and drops those that do not fit.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use engine::{DaemonError, EngineError, Watch, WatchEvent};
use futures_util::{Stream, stream};
use serde_json::json;
use tokio::time::Instant;

use super::messages::event;
use super::watchers::entry_of;
use crate::envd::connect::{CallOptions, Code, RpcError, end_of_stream, message};
use crate::envd::failure::Failure;
use crate::envd::target::Target;

const START: &[u8] = br#"{"start":{}}"#;
const KEEPALIVE: &[u8] = br#"{"keepalive":{}}"#;

/// A watch and the position in its stream.
pub struct WatchStream {
    target: Target,
    user: String,
    path: String,
    include_entry: bool,
    watch: Watch,
    keepalive: Duration,
    deadline: Option<Instant>,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    Starting,
    Running,
    Ended,
}

impl WatchStream {
    pub fn new(
        target: Target,
        user: String,
        path: String,
        include_entry: bool,
        watch: Watch,
        options: &CallOptions,
    ) -> Self {
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let keepalive = options.keepalive;
        Self { target, user, path, include_entry, watch, keepalive, deadline, phase: Phase::Starting }
    }

    /// The envelopes. An error cuts the connection.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
        stream::unfold(self, |mut watch| async move {
            let next = match watch.phase {
                Phase::Starting => {
                    watch.phase = Phase::Running;
                    Ok(message(START))
                }
                Phase::Running => watch.next().await,
                Phase::Ended => return None,
            };
            if next.is_err() {
                watch.phase = Phase::Ended;
            }
            Some((next, watch))
        })
    }

    async fn next(&mut self) -> Result<Bytes, io::Error> {
        let deadline = self.deadline;
        let over = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let found = tokio::select! {
            biased;
            found = self.watch.next() => found,
            () = over => {
                let error = RpcError::new(Code::DeadlineExceeded, "the deadline of the watch is over");
                return Ok(self.end(Some(&error)));
            }
            () = tokio::time::sleep(self.keepalive) => return Ok(message(KEEPALIVE)),
        };
        match found {
            Ok(Some(WatchEvent::Changed { kind, name })) => {
                let details = match self.include_entry {
                    true => entry_of(&self.target, &self.user, &self.path, kind, &name).await,
                    false => None,
                };
                let json = json!({ "filesystem": event(kind, &name, details.as_ref()) });
                Ok(message(json.to_string().as_bytes()))
            }
            Ok(Some(WatchEvent::Overflow)) => {
                let error =
                    RpcError::new(Code::DataLoss, "events were lost because they were not read in time");
                Ok(self.end(Some(&error)))
            }
            Ok(None) => Ok(self.end(None)),
            Err(EngineError::Daemon(DaemonError::Stopping)) => {
                Err(io::Error::other("the daemon is stopping"))
            }
            Err(error) => {
                let failure = Failure::of(error);
                match failure.to_rpc() {
                    Some(error) if self.target.exists().await => Ok(self.end(Some(&error))),
                    _ => Err(io::Error::other("the sandbox is not running")),
                }
            }
        }
    }

    /// The last envelope.
    fn end(&mut self, error: Option<&RpcError>) -> Bytes {
        self.phase = Phase::Ended;
        end_of_stream(error)
    }
}
