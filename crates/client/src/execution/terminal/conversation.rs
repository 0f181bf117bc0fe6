//! The task that owns the connection of a terminal. It reconnects and replays missed output.

use std::time::Duration;

use api::{TerminalControl, TerminalNote, TerminalSize};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use super::TerminalEvent;
use crate::execution::detached::Detached;
use crate::execution::reattach::passes;
use crate::transport::websocket::Socket;
use crate::{Error, Result};

/// Limit for reconnecting without success.
const LONGEST_AWAY: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The service sends pings every few seconds.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// Input to a terminal.
#[derive(Debug)]
pub enum TerminalInput {
    Bytes(Bytes),
    Size(TerminalSize),
}

pub struct Conversation {
    execution: Detached,
    /// Offset: bytes received since the beginning.
    position: u64,
    /// The last size, to send again on the next connection.
    size: Option<TerminalSize>,
    input: mpsc::Receiver<TerminalInput>,
    events: mpsc::Sender<Result<TerminalEvent>>,
    socket: Socket,
}

/// Why a connection ended.
enum ConnectionEnd {
    /// The terminal ended or was detached.
    Finished,
    Lost(Error),
}

impl Conversation {
    pub async fn open(
        execution: Detached,
        position: u64,
        input: mpsc::Receiver<TerminalInput>,
        events: mpsc::Sender<Result<TerminalEvent>>,
    ) -> Result<Self> {
        let socket = connected(&execution, position).await?;
        Ok(Self { execution, position, size: None, input, events, socket })
    }

    pub async fn run(mut self) {
        loop {
            let error = match self.run_connection().await {
                ConnectionEnd::Finished => return,
                ConnectionEnd::Lost(error) => error,
            };
            if self.events.send(Ok(TerminalEvent::Disconnected)).await.is_err() {
                return;
            }
            if let Err(error) = self.reconnect(error).await {
                // The receiver may be gone.
                let _ = self.events.send(Err(error)).await;
                return;
            }
            if self.events.send(Ok(TerminalEvent::Reconnected)).await.is_err() {
                return;
            }
        }
    }

    async fn reconnect(&mut self, mut error: Error) -> Result<()> {
        let (since, mut wait) = (Instant::now(), FIRST_WAIT);
        while passes(&error) && since.elapsed() < LONGEST_AWAY {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            match connected(&self.execution, self.position).await {
                Ok(socket) => {
                    self.socket = socket;
                    return Ok(());
                }
                Err(next) => error = next,
            }
        }
        Err(self.execution.sandbox().failed(error))
    }

    /// Serves one connection until it ends.
    async fn run_connection(&mut self) -> ConnectionEnd {
        if let Some(size) = self.size
            && self.socket.send(resize(size)).await.is_err()
        {
            return lost("the connection was interrupted");
        }
        loop {
            tokio::select! {
                input = self.input.recv() => {
                    let message = match input {
                        Some(TerminalInput::Bytes(bytes)) => Message::Binary(bytes),
                        Some(TerminalInput::Size(size)) => {
                            self.size = Some(size);
                            resize(size)
                        }
                        None => return ConnectionEnd::Finished,
                    };
                    if self.socket.send(message).await.is_err() {
                        return lost("the connection was interrupted");
                    }
                }
                heard = tokio::time::timeout(LONGEST_SILENCE, self.socket.next()) => {
                    let event = match heard {
                        Ok(Some(Ok(Message::Binary(bytes)))) => {
                            self.position += bytes.len() as u64;
                            Some(TerminalEvent::Bytes(bytes))
                        }
                        Ok(Some(Ok(Message::Text(text)))) => match self.control_message(&text) {
                            Ok(event) => event,
                            Err(error) => return ConnectionEnd::Lost(error),
                        },
                        Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => None,
                        Ok(Some(Ok(Message::Close(_))) | None) => return lost("the connection was closed"),
                        Ok(Some(Err(error))) => return lost(error),
                        Err(_) => return lost("the service sent neither output nor a ping for too long"),
                    };
                    let Some(event) = event else { continue };
                    let is_last = matches!(event, TerminalEvent::Ended(_));
                    if self.events.send(Ok(event)).await.is_err() || is_last {
                        return ConnectionEnd::Finished;
                    }
                }
            }
        }
    }

    fn control_message(&mut self, text: &str) -> Result<Option<TerminalEvent>> {
        let note: TerminalNote = serde_json::from_str(text)
            .map_err(|error| Error::unknown(101, "a message cannot be parsed", None).caused_by(error))?;
        if let Some(error) = note.error {
            let text = serde_json::to_string(&error).unwrap_or_default();
            return Err(Error::of_event(&text).unwrap_or_else(|| Error::network("the terminal failed")));
        }
        if let Some(view) = note.ended {
            return Ok(Some(TerminalEvent::Ended(Box::new(view))));
        }
        if let Some(warning) = note.warning {
            return Ok(Some(TerminalEvent::Warning(warning.message)));
        }
        let Some(position) = note.position else { return Ok(None) };
        let is_further = position > self.position;
        self.position = position;
        Ok(is_further.then_some(TerminalEvent::Dropped))
    }
}

async fn connected(execution: &Detached, position: u64) -> Result<Socket> {
    let path = execution.path(&format!("/attach?after={position}"));
    execution.sandbox().client().transport().websocket(&path).await
}

fn resize(size: TerminalSize) -> Message {
    let control = TerminalControl { resize: Some(size), ..TerminalControl::default() };
    // Serializing two numbers cannot fail.
    Message::text(serde_json::to_string(&control).unwrap_or_default())
}

fn lost(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConnectionEnd {
    ConnectionEnd::Lost(Error::network("the connection of the terminal was lost").caused_by(cause))
}
