//! The first bytes of a connection, as they come.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::sniff::{First, sniff, sniff_ended};

/// In which a client has to have said who it wants to reach.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// At least so much room for each read.
const READ_BYTES: usize = 2048;

/// What a client has said so far.
#[derive(Debug, Default)]
pub struct Head {
    pub bytes: Vec<u8>,
    ended: bool,
    /// It cannot be told before there are so many bytes.
    wanted: usize,
}

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    /// It is known what the connection is.
    First(First),
    /// The client has said nothing at all yet, and no time is left.
    Nothing,
    /// It has said too little, and no time is left.
    Late,
    /// The client went without a word.
    Gone,
}

impl Head {
    /// Reads on until it is clear what the connection is. Can be dropped and called again.
    pub async fn read(&mut self, client: &TcpStream, until: Instant) -> io::Result<Came> {
        loop {
            match self.step(client)? {
                Some(came) => return Ok(came),
                None => {
                    tokio::select! {
                        ready = client.readable() => ready?,
                        () = sleep_until(until) => return Ok(self.too_late()),
                    }
                }
            }
        }
    }

    /// Waits until anything has been said, however long that takes.
    pub async fn begin(&mut self, client: &TcpStream) -> io::Result<()> {
        if self.bytes.is_empty() && !self.ended {
            client.readable().await?;
        }
        Ok(())
    }

    fn too_late(&mut self) -> Came {
        if !self.bytes.is_empty() {
            return Came::Late;
        }
        // Whoever is silent holds no memory.
        self.bytes = Vec::new();
        Came::Nothing
    }

    /// Takes what is there. `None` if that does not tell yet.
    fn step(&mut self, client: &TcpStream) -> io::Result<Option<Came>> {
        loop {
            self.bytes.reserve(READ_BYTES.max(self.wanted.saturating_sub(self.bytes.len())));
            match client.try_read_buf(&mut self.bytes) {
                Ok(0) => {
                    self.ended = true;
                    let ended = || Came::First(sniff_ended(&self.bytes));
                    return Ok(Some(if self.bytes.is_empty() { Came::Gone } else { ended() }));
                }
                Ok(_) if self.bytes.len() < self.wanted => {}
                Ok(_) => match sniff(&self.bytes) {
                    First::NeedMore(length) => self.wanted = length,
                    first => return Ok(Some(Came::First(first))),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}
