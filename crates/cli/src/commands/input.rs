//! Standard input of a command, with `-i`. Called by `run` and `exec`.
//!
//! Short text is sent with the request. Binary or longer input is sent in chunks while the command runs.

use std::io::{self, Read};
use std::time::Duration;

use anyhow::{Context, Result};
use sandboxd_client::{Code, Detached, Execute};
use tokio::sync::mpsc;

use crate::cli::Running;

/// The service's limit for a request, minus a margin.
const LONGEST_TEXT: usize = 15 << 20;
/// Size of one write to the command.
const PIECE: usize = 1 << 20;
/// Size of one read; the capacity of a pipe.
const READ: usize = 64 << 10;
/// Chunks to read ahead.
const AHEAD: usize = 4;
/// Number of checks whether the command has ended.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(100);

/// Standard input.
pub enum Input {
    None,
    /// All of it.
    Text(String),
    Raw(Raw),
}

/// Input to send while the command runs.
pub struct Raw {
    /// What was read already.
    begun: Vec<u8>,
    /// There may be more.
    goes_on: bool,
}

impl Input {
    /// Reads standard input, to its end if it is text. This may take long, so it precedes everything with a time limit.
    pub async fn read(running: &Running) -> Result<Self> {
        if !running.stdin {
            return Ok(Self::None);
        }
        // A thread, because a read from a terminal cannot be cancelled.
        let read = tokio::task::spawn_blocking(|| begin(&mut io::stdin().lock())).await;
        read.context("reading standard input")?.context("reading standard input")
    }

    /// Whether it must be sent while the command runs.
    pub fn is_raw(&self) -> bool {
        matches!(self, Self::Raw(_))
    }

    /// Adds the input to the request. Returns what must be sent while the command runs.
    pub fn given_to(self, execute: Execute) -> (Execute, Option<Raw>) {
        match self {
            Self::None => (execute, None),
            Self::Text(text) => (execute.stdin(text), None),
            Self::Raw(raw) => (execute.open_stdin(), Some(raw)),
        }
    }
}

fn begin(from: &mut impl Read) -> io::Result<Input> {
    let mut begun = Vec::new();
    from.take(LONGEST_TEXT as u64 + 1).read_to_end(&mut begun)?;
    let goes_on = begun.len() > LONGEST_TEXT;
    Ok(match String::from_utf8(begun) {
        Ok(text) if !goes_on && fits(&text) => Input::Text(text),
        Ok(text) => Input::Raw(Raw { begun: text.into_bytes(), goes_on }),
        Err(error) => Input::Raw(Raw { begun: error.into_bytes(), goes_on }),
    })
}

/// Whether the text fits as JSON, which needs up to six bytes per byte.
fn fits(text: &str) -> bool {
    serde_json::to_vec(text).is_ok_and(|json| json.len() <= LONGEST_TEXT)
}

impl Raw {
    /// Sends all input and closes standard input of the command. It is not a failure if the command stops reading or ends.
    pub async fn feed(self, command: &Detached) -> Result<()> {
        let Err(error) = self.fed(command).await else { return Ok(()) };
        match error.downcast_ref::<sandboxd_client::Error>().map(sandboxd_client::Error::code) {
            Some(Code::ExecutionEnded | Code::StdinClosed) => Ok(()),
            Some(_) if wants_no_more(command).await => Ok(()),
            _ => Err(error.context("feeding standard input")),
        }
    }

    async fn fed(self, command: &Detached) -> Result<()> {
        for piece in self.begun.chunks(PIECE) {
            command.write_patiently(piece.to_vec()).await?;
        }
        if self.goes_on {
            let (tell, mut pieces) = mpsc::channel(AHEAD);
            // As above; what it waits for when all is over nobody reads.
            std::thread::spawn(move || read_on(&mut io::stdin().lock(), &tell));
            while let Some(piece) = pieces.recv().await {
                command.write_patiently(piece?).await?;
            }
        }
        Ok(command.close_stdin().await?)
    }
}

/// A command that ends during a write aborts the write before its end is visible, so this checks for a while.
async fn wants_no_more(command: &Detached) -> bool {
    for _ in 0..LOOKS {
        match command.status().await {
            Ok(view) if view.ended_at.is_some() || !view.stdin_open => return true,
            Ok(_) => tokio::time::sleep(BETWEEN).await,
            Err(_) => return false,
        }
    }
    false
}

/// Forwards input in chunks.
fn read_on(from: &mut impl Read, tell: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut piece = vec![0; READ];
    loop {
        let told = match from.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => tell.blocking_send(Ok(piece[..count].to_vec())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => tell.blocking_send(Err(error)),
        };
        if told.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(bytes: &[u8]) -> (Input, usize) {
        let mut rest = bytes;
        (begin(&mut rest).unwrap(), rest.len())
    }

    #[test]
    fn only_text_that_fits_goes_with_the_command() {
        assert!(matches!(begun(b"text"), (Input::Text(text), 0) if text == "text"));
        assert!(matches!(begun(b""), (Input::Text(_), 0)));
        assert!(matches!(begun(b"\xff"), (Input::Raw(Raw { begun, goes_on: false }), 0) if begun == b"\xff"));
        // With its quotes it is just too long.
        let long = vec![b'x'; LONGEST_TEXT];
        assert!(matches!(begun(&long[2..]), (Input::Text(_), 0)));
        assert!(matches!(begun(&long), (Input::Raw(Raw { goes_on: false, .. }), 0)));
        // As JSON each is two bytes.
        assert!(matches!(begun(&b"\n".repeat(LONGEST_TEXT / 2)), (Input::Raw(_), 0)));
        let longer = vec![b'x'; LONGEST_TEXT + 10];
        let (Input::Raw(raw), 9) = begun(&longer) else { panic!() };
        assert!(raw.goes_on && raw.begun.len() == LONGEST_TEXT + 1);
    }

    #[test]
    fn what_is_left_comes_in_pieces_and_ends() {
        let (tell, mut pieces) = mpsc::channel(8);
        read_on(&mut vec![7; READ + 1].as_slice(), &tell);
        drop(tell);
        let mut next = || pieces.blocking_recv().map(|piece| piece.unwrap().len());
        assert_eq!([next(), next(), next()], [Some(READ), Some(1), None]);
    }
}
