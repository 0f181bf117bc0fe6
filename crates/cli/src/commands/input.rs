//! Standard input of a command, with `-i`. Called by `run` and `exec`.
//!
//! It is passed on as it comes, while the command runs. Only a buffered command gets it with its request.
//!
//! A request takes the input that comes without a pause. So a dialogue needs few requests, of which the service limits the number, no
//! request waits for input that does not come, and a connection that is lost during a pause loses nothing.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use sandboxd_client::{Code, Detached, Execute};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, timeout_at};

use crate::cli::CommandOptions;

/// The service's limit of a request body, minus a margin.
const MAX_TEXT_BYTES: usize = 15 << 20;
/// Size of one read; the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;
/// Chunks to read ahead.
const READ_AHEAD: usize = 16;
/// The pause after which a request ends.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time of a request, because the service refuses one that brings little for long.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Number of checks whether the command has stopped reading.
const END_CHECKS: u32 = 20;
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How often to look whether a command has ended whose output nobody follows.
const END_INTERVAL: Duration = Duration::from_secs(2);

type Chunk = io::Result<Vec<u8>>;

/// Standard input.
pub enum Input {
    None,
    /// The whole input, sent with the request.
    Text(String),
    Streamed,
}

/// Input to send while the command runs.
pub struct StreamedInput(());

impl Input {
    /// The input as the options ask for it. Reads that of a buffered command. This may take long, so it precedes everything with a time
    /// limit.
    pub async fn read(running: &CommandOptions) -> Result<Self> {
        match (running.stdin, running.buffered) {
            (false, _) => Ok(Self::None),
            (true, false) => Ok(Self::Streamed),
            (true, true) => {
                // A thread, because a read from a terminal cannot be cancelled.
                let read = tokio::task::spawn_blocking(|| read_text(&mut io::stdin().lock()));
                read.await.context("cannot read standard input")?.map(Self::Text)
            }
        }
    }

    /// Adds the input to the request. Returns what must be sent while the command runs.
    pub fn add_to(self, execute: Execute) -> (Execute, Option<StreamedInput>) {
        match self {
            Self::None => (execute, None),
            Self::Text(text) => (execute.stdin(text), None),
            Self::Streamed => (execute.open_stdin(), Some(StreamedInput(()))),
        }
    }
}

fn read_text(from: &mut impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.context("cannot read standard input")?;
    match String::from_utf8(bytes) {
        Ok(text) if fits(&text) => Ok(text),
        _ => bail!("--buffered accepts only text of up to 15 MiB on standard input; run without --buffered"),
    }
}

/// Whether the text fits as JSON, which needs up to six bytes per byte.
fn fits(text: &str) -> bool {
    serde_json::to_vec(text).is_ok_and(|json| json.len() <= MAX_TEXT_BYTES)
}

impl StreamedInput {
    /// Sends all input and closes standard input of the command. It is not a failure if the command stops reading or ends.
    pub async fn write_stdin(self, command: &Detached) -> Result<()> {
        let Err(error) = send_all(command).await else { return Ok(()) };
        match error.code() {
            Code::ExecutionEnded | Code::StdinClosed => Ok(()),
            _ if has_stopped_reading(command).await => Ok(()),
            _ => Err(error).context("cannot send standard input"),
        }
    }
}

async fn send_all(command: &Detached) -> Result<(), sandboxd_client::Error> {
    let (sender, chunks) = mpsc::channel(READ_AHEAD);
    // A thread, because a read cannot be cancelled. It may outlive the command; its last chunk is then discarded.
    std::thread::spawn(move || forward_chunks(&mut io::stdin().lock(), &sender));
    let chunks = Arc::new(Mutex::new(chunks));
    loop {
        let first = chunks.lock().await.recv().await;
        let Some(first) = first else { return command.close_stdin().await };
        command.write_stream(without_pause(first, Arc::clone(&chunks))).await?;
    }
}

/// The chunks of one request: the first one and those that follow it without a pause.
fn without_pause(
    first: Chunk,
    chunks: Arc<Mutex<mpsc::Receiver<Chunk>>>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let end = Instant::now() + REQUEST_TIME;
    unfold((Some(first), chunks), move |(first, chunks)| async move {
        let chunk = match first {
            Some(first) => first,
            None => {
                let next = async { chunks.lock().await.recv().await };
                timeout_at(end.min(Instant::now() + PAUSE), next).await.ok()??
            }
        };
        Some((chunk.map(Bytes::from), (None, chunks)))
    })
}

/// Whether the command has ended or closed its input. Checks repeatedly, because a write fails a moment before the
/// service reports the end.
async fn has_stopped_reading(command: &Detached) -> bool {
    for _ in 0..END_CHECKS {
        match command.status().await {
            Ok(view) if view.ended_at.is_some() || !view.stdin_open => return true,
            Ok(_) => sleep(CHECK_INTERVAL).await,
            Err(_) => return false,
        }
    }
    false
}

/// Returns when the command has ended. Its output is not followed, because output that was read is not stored.
pub async fn ended(command: &Detached) {
    loop {
        sleep(END_INTERVAL).await;
        if command.status().await.is_ok_and(|view| view.ended_at.is_some()) {
            return;
        }
    }
}

/// Forwards input in chunks.
fn forward_chunks(from: &mut impl Read, sender: &mpsc::Sender<Chunk>) {
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => Ok(chunk[..count].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = read.is_err();
        if sender.blocking_send(read).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[test]
    fn only_text_that_fits_is_sent_with_the_request() {
        let text = |bytes: &[u8]| read_text(&mut &*bytes).ok();
        assert_eq!(text(b"text").as_deref(), Some("text"));
        assert_eq!(text(b"").as_deref(), Some(""));
        assert_eq!(text(b"\xff"), None);
        // As JSON with quotes it is two bytes too long.
        let long = vec![b'x'; MAX_TEXT_BYTES + 10];
        assert!(text(&long[..MAX_TEXT_BYTES - 2]).is_some());
        assert!(text(&long[..MAX_TEXT_BYTES]).is_none() && text(&long).is_none());
        // As JSON each newline is two bytes.
        assert!(text(&b"\n".repeat(MAX_TEXT_BYTES / 2)).is_none());
    }

    #[test]
    fn input_is_forwarded_in_chunks() {
        let (sender, mut chunks) = mpsc::channel(8);
        forward_chunks(&mut vec![7; READ_BYTES + 1].as_slice(), &sender);
        drop(sender);
        let mut next = || chunks.blocking_recv().map(|chunk| chunk.unwrap().len());
        assert_eq!([next(), next(), next()], [Some(READ_BYTES), Some(1), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_at_a_pause_at_the_end_and_after_a_while() {
        let (sender, chunks) = mpsc::channel(8);
        let chunks = Arc::new(Mutex::new(chunks));
        let request = |first| without_pause(Ok(vec![first]), Arc::clone(&chunks)).map(Result::unwrap);
        sender.send(Ok(vec![2, 3])).await.unwrap();
        let began = Instant::now();
        assert_eq!(request(1).collect::<Vec<_>>().await, [&[1][..], &[2, 3]]);
        assert_eq!(began.elapsed(), PAUSE);
        let trickling = tokio::spawn(async move {
            for _ in 0..20 {
                sleep(PAUSE / 2).await;
                sender.send(Ok(vec![0])).await.unwrap();
            }
        });
        let began = Instant::now();
        assert!(request(1).count().await < 20);
        assert_eq!(began.elapsed(), REQUEST_TIME);
        while chunks.lock().await.recv().await.is_some() {}
        trickling.await.unwrap();
        assert_eq!(request(1).count().await, 1);
    }
}
