//! Reads the first bytes of a connection until they identify its protocol.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::sniff::{First, sniff, sniff_ended};

/// Time limit for a client to name its host.
pub const PREAMBLE_TIME: Duration = Duration::from_secs(10);
/// Minimum buffer of each read.
const READ_BYTES: usize = 2048;

/// The bytes received so far.
#[derive(Debug, Default)]
pub struct Preamble {
    pub bytes: Vec<u8>,
    ended: bool,
    /// The protocol cannot be identified before this many bytes.
    wanted: usize,
}

/// The result of reading.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// The protocol is identified.
    First(First),
    /// The client has sent nothing, and the time is over.
    Silent,
    /// The client has sent too little, and the time is over.
    TimedOut,
    /// The client closed the connection without sending anything.
    Closed,
}

impl Preamble {
    /// Reads until the protocol is identified. Can be dropped and called again.
    pub async fn read(&mut self, client: &TcpStream, until: Instant) -> io::Result<Received> {
        loop {
            match self.step(client)? {
                Some(received) => return Ok(received),
                None => {
                    tokio::select! {
                        ready = client.readable() => ready?,
                        () = sleep_until(until) => return Ok(self.on_timeout()),
                    }
                }
            }
        }
    }

    /// Waits for the first byte, without a time limit.
    pub async fn begin(&mut self, client: &TcpStream) -> io::Result<()> {
        if self.bytes.is_empty() && !self.ended {
            client.readable().await?;
        }
        Ok(())
    }

    fn on_timeout(&mut self) -> Received {
        if !self.bytes.is_empty() {
            return Received::TimedOut;
        }
        // A silent connection holds no memory.
        self.bytes = Vec::new();
        Received::Silent
    }

    /// Reads what is available. `None` if it does not identify the protocol.
    fn step(&mut self, client: &TcpStream) -> io::Result<Option<Received>> {
        loop {
            self.bytes.reserve(READ_BYTES.max(self.wanted.saturating_sub(self.bytes.len())));
            match client.try_read_buf(&mut self.bytes) {
                Ok(0) => {
                    self.ended = true;
                    let ended = || Received::First(sniff_ended(&self.bytes));
                    return Ok(Some(if self.bytes.is_empty() { Received::Closed } else { ended() }));
                }
                Ok(_) if self.bytes.len() < self.wanted => {}
                Ok(_) => match sniff(&self.bytes) {
                    First::NeedMore(length) => self.wanted = length,
                    first => return Ok(Some(Received::First(first))),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}
