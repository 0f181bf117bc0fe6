//! Standard input of a command, with `-i`. Called by `run` and `exec`.
//!
//! Short text is sent with the request. Binary or longer input is sent in chunks while the command runs.

use std::io::{self, Read};
use std::time::Duration;

use anyhow::{Context, Result};
use sandboxd_client::{Code, Detached, Execute};
use tokio::sync::mpsc;

use crate::cli::CommandOptions;

/// The service's limit of a request body, minus a margin.
const MAX_TEXT_BYTES: usize = 15 << 20;
/// Size of one write to the command. The service limits the number of writes a minute, so one takes all that has been read.
const WRITE_BYTES: usize = 8 << 20;
/// Size of one read; the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;
/// Chunks to read ahead: those of one write.
const READ_AHEAD: usize = WRITE_BYTES / READ_BYTES;
/// Number of checks whether the command has stopped reading.
const END_CHECKS: u32 = 20;
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Standard input.
pub enum Input {
    None,
    /// The whole input, sent with the request.
    Text(String),
    Raw(Raw),
}

/// Input to send while the command runs.
pub struct Raw {
    /// The bytes read so far.
    prefix: Vec<u8>,
    /// Standard input may have more.
    has_more: bool,
}

impl Input {
    /// Reads standard input, to its end if it is text. This may take long, so it precedes everything with a time limit.
    pub async fn read(running: &CommandOptions) -> Result<Self> {
        if !running.stdin {
            return Ok(Self::None);
        }
        // A thread, because a read from a terminal cannot be cancelled.
        let read = tokio::task::spawn_blocking(|| read_prefix(&mut io::stdin().lock())).await;
        read.context("cannot read standard input")?.context("cannot read standard input")
    }

    /// Whether it must be sent while the command runs.
    pub fn is_raw(&self) -> bool {
        matches!(self, Self::Raw(_))
    }

    /// Adds the input to the request. Returns what must be sent while the command runs.
    pub fn add_to(self, execute: Execute) -> (Execute, Option<Raw>) {
        match self {
            Self::None => (execute, None),
            Self::Text(text) => (execute.stdin(text), None),
            Self::Raw(raw) => (execute.open_stdin(), Some(raw)),
        }
    }
}

fn read_prefix(from: &mut impl Read) -> io::Result<Input> {
    let mut prefix = Vec::new();
    from.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut prefix)?;
    let has_more = prefix.len() > MAX_TEXT_BYTES;
    Ok(match String::from_utf8(prefix) {
        Ok(text) if !has_more && fits(&text) => Input::Text(text),
        Ok(text) => Input::Raw(Raw { prefix: text.into_bytes(), has_more }),
        Err(error) => Input::Raw(Raw { prefix: error.into_bytes(), has_more }),
    })
}

/// Whether the text fits as JSON, which needs up to six bytes per byte.
fn fits(text: &str) -> bool {
    serde_json::to_vec(text).is_ok_and(|json| json.len() <= MAX_TEXT_BYTES)
}

impl Raw {
    /// Sends all input and closes standard input of the command. It is not a failure if the command stops reading or ends.
    pub async fn write_stdin(self, command: &Detached) -> Result<()> {
        let Err(error) = self.send_all(command).await else { return Ok(()) };
        match error.downcast_ref::<sandboxd_client::Error>().map(sandboxd_client::Error::code) {
            Some(Code::ExecutionEnded | Code::StdinClosed) => Ok(()),
            Some(_) if has_stopped_reading(command).await => Ok(()),
            _ => Err(error.context("cannot send standard input")),
        }
    }

    async fn send_all(self, command: &Detached) -> Result<()> {
        for chunk in self.prefix.chunks(WRITE_BYTES) {
            command.write_patiently(chunk.to_vec()).await?;
        }
        if self.has_more {
            let (sender, mut chunks) = mpsc::channel(READ_AHEAD);
            // A thread for the same reason. It may outlive the command; its last chunk is then discarded.
            std::thread::spawn(move || forward_chunks(&mut io::stdin().lock(), &sender));
            while let Some(chunk) = chunks.recv().await {
                let (bytes, failed) = gathered(chunk?, &mut chunks);
                command.write_patiently(bytes).await?;
                failed?;
            }
        }
        Ok(command.close_stdin().await?)
    }
}

/// The chunk and those after it that have been read already, and a failure to read more.
fn gathered(first: Vec<u8>, chunks: &mut mpsc::Receiver<io::Result<Vec<u8>>>) -> (Vec<u8>, io::Result<()>) {
    let mut bytes = first;
    while bytes.len() < WRITE_BYTES {
        match chunks.try_recv() {
            Ok(Ok(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(Err(error)) => return (bytes, Err(error)),
            Err(_) => break,
        }
    }
    (bytes, Ok(()))
}

/// Whether the command has ended or closed its input. Checks repeatedly, because a write fails a moment before the
/// service reports the end.
async fn has_stopped_reading(command: &Detached) -> bool {
    for _ in 0..END_CHECKS {
        match command.status().await {
            Ok(view) if view.ended_at.is_some() || !view.stdin_open => return true,
            Ok(_) => tokio::time::sleep(CHECK_INTERVAL).await,
            Err(_) => return false,
        }
    }
    false
}

/// Forwards input in chunks.
fn forward_chunks(from: &mut impl Read, sender: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let sent = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => sender.blocking_send(Ok(chunk[..count].to_vec())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => sender.blocking_send(Err(error)),
        };
        if sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(bytes: &[u8]) -> (Input, usize) {
        let mut rest = bytes;
        (read_prefix(&mut rest).unwrap(), rest.len())
    }

    #[test]
    fn only_text_that_fits_is_sent_with_the_request() {
        assert!(matches!(prefix(b"text"), (Input::Text(text), 0) if text == "text"));
        assert!(matches!(prefix(b""), (Input::Text(_), 0)));
        assert!(
            matches!(prefix(b"\xff"), (Input::Raw(Raw { prefix, has_more: false }), 0) if prefix == b"\xff")
        );
        // As JSON with quotes it is two bytes too long.
        let long = vec![b'x'; MAX_TEXT_BYTES];
        assert!(matches!(prefix(&long[2..]), (Input::Text(_), 0)));
        assert!(matches!(prefix(&long), (Input::Raw(Raw { has_more: false, .. }), 0)));
        // As JSON each newline is two bytes.
        assert!(matches!(prefix(&b"\n".repeat(MAX_TEXT_BYTES / 2)), (Input::Raw(_), 0)));
        let longer = vec![b'x'; MAX_TEXT_BYTES + 10];
        let (Input::Raw(raw), 9) = prefix(&longer) else { panic!() };
        assert!(raw.has_more && raw.prefix.len() == MAX_TEXT_BYTES + 1);
    }

    #[test]
    fn the_rest_is_forwarded_in_chunks() {
        let (sender, mut chunks) = mpsc::channel(8);
        forward_chunks(&mut vec![7; READ_BYTES + 1].as_slice(), &sender);
        drop(sender);
        let mut next = || chunks.blocking_recv().map(|chunk| chunk.unwrap().len());
        assert_eq!([next(), next(), next()], [Some(READ_BYTES), Some(1), None]);
    }

    #[test]
    fn what_has_been_read_is_one_write() {
        let (sender, mut chunks) = mpsc::channel(READ_AHEAD + 2);
        let send = |chunk| sender.try_send(chunk).unwrap();
        assert!(matches!(gathered(vec![1], &mut chunks), (bytes, Ok(())) if bytes == [1]));
        send(Ok(vec![2, 3]));
        send(Err(io::Error::other("broken")));
        assert!(matches!(gathered(vec![1], &mut chunks), (bytes, Err(_)) if bytes == [1, 2, 3]));
        for _ in 0..=READ_AHEAD {
            send(Ok(vec![0; READ_BYTES]));
        }
        assert_eq!(gathered(vec![0; READ_BYTES], &mut chunks).0.len(), WRITE_BYTES);
    }
}
