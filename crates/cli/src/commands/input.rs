//! Standard input of a command, with `-i`. Called by `run` and `exec`.
//!
//! It is passed on as it comes, while the command runs. Only a buffered command gets it with its request.
//!
//! A request takes the input that comes without a pause. So a dialogue needs few requests, of which the service limits the number, no
//! request waits for input that does not come, and a connection that is lost during a pause loses nothing. The input of a request is kept
//! until the service has taken it, and a refused request is sent again.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, Read};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use sandboxd_client::{Code, Detached, Execute, ExecutionView, SandboxState};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

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
/// The size at which a request ends, because its input is kept. The last chunk may exceed it.
const REQUEST_BYTES: usize = 16 << 20;
/// From the beginning of a request to that of the next one: at most 480 in a minute, of which the service allows 600 for a sandbox.
const REQUEST_INTERVAL: Duration = Duration::from_millis(125);
/// The most bytes of one frame of a body.
const PIECE_BYTES: usize = 256 << 10;
/// How long the service may be away, as for the output.
const LONGEST_AWAY: Duration = Duration::from_secs(120);
/// The shortest and the longest time until a request is sent again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
const CANNOT_SEND: &str = "cannot send standard input";
/// Number of checks whether the command has stopped reading.
const END_CHECKS: u32 = 20;
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How often to look whether a command has ended whose output nobody follows.
const END_INTERVAL: Duration = Duration::from_secs(2);

/// Standard input.
pub enum Input {
    None,
    /// The whole input, sent with the request.
    Text(String),
    Streamed,
}

/// Input to send while the command runs.
pub struct StreamedInput {
    from: Box<dyn Read + Send>,
}

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
            Self::Streamed => (execute.open_stdin(), Some(StreamedInput { from: Box::new(io::stdin()) })),
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
        let Err(error) = self.send_all(command).await else { return Ok(()) };
        match error.downcast_ref::<sandboxd_client::Error>().map(sandboxd_client::Error::code) {
            Some(Code::ExecutionEnded | Code::StdinClosed) => Ok(()),
            _ if has_stopped_reading(command).await => Ok(()),
            _ => Err(error),
        }
    }

    async fn send_all(self, command: &Detached) -> Result<()> {
        let Self { mut from } = self;
        let (sender, mut chunks) = mpsc::channel(READ_AHEAD);
        // A thread, because a read cannot be cancelled. It may outlive the command; its last chunk is then discarded.
        let reading = std::thread::spawn(move || forward_chunks(&mut from, &sender));
        let mut earliest = Instant::now();
        while let Some(first) = chunks.recv().await {
            sleep_until(earliest).await;
            earliest = Instant::now() + REQUEST_INTERVAL;
            let input = watch::Sender::new(RequestInput { bytes: first, is_complete: false });
            let filling = async {
                fill(&input, &mut chunks).await;
                pending::<Infallible>().await
            };
            tokio::select! {
                sent = send(command, InputRequest::Write(&input)) => sent.context(CANNOT_SEND)?,
                never = filling => match never {},
            }
        }
        // The channel has ended, so the thread ends.
        let read =
            reading.join().unwrap_or_else(|_| Err(io::Error::other("the thread that reads it has failed")));
        read.context("cannot read standard input")?;
        send(command, InputRequest::Close).await.context(CANNOT_SEND)
    }
}

/// The input of one request. It is kept until the service has taken it, and grows while it is being sent.
struct RequestInput {
    bytes: Vec<u8>,
    is_complete: bool,
}

#[derive(Clone, Copy)]
enum InputRequest<'a> {
    Write(&'a watch::Sender<RequestInput>),
    Close,
}

/// What to do after a request has failed.
#[derive(Debug, PartialEq, Eq)]
enum Repetition {
    Never,
    /// As long as the service may be about to come back.
    WhileAway,
    /// As long as the sandbox is paused.
    WhilePaused,
    /// The service says that it takes the request later.
    UntilTaken,
}

/// Sends a request until the service has taken it. While the service restarts or refuses it for now, the command waits for its input, and is
/// not ended. A request of which a part may have arrived is not repeated.
async fn send(command: &Detached, request: InputRequest<'_>) -> sandboxd_client::Result<()> {
    let mut away_since: Option<Instant> = None;
    loop {
        let sent = match request {
            InputRequest::Write(input) => {
                let input = input.subscribe();
                command.write_stream(move || pieces(input.clone())).await
            }
            InputRequest::Close => command.close_stdin().await,
        };
        let Err(error) = sent else { return Ok(()) };
        let is_away = match repetition(request, &error) {
            Repetition::Never => return Err(error),
            Repetition::WhileAway => true,
            // It may have been resumed just now.
            Repetition::WhilePaused => !is_paused(command).await,
            Repetition::UntilTaken => false,
        };
        if !is_away {
            away_since = None;
        } else if away_since.get_or_insert_with(Instant::now).elapsed() > LONGEST_AWAY {
            return Err(error);
        }
        sleep(error.retry_after().map_or(RETRY_PAUSE, |asked| asked.clamp(RETRY_PAUSE, LONGEST_PAUSE))).await;
    }
}

fn repetition(request: InputRequest<'_>, error: &sandboxd_client::Error) -> Repetition {
    // A second close finds the input closed, which is not a failure.
    let is_repeatable = error.had_no_effect() || matches!(request, InputRequest::Close);
    match error.code() {
        Code::InvalidState => Repetition::WhilePaused,
        Code::NetworkError if is_repeatable => Repetition::WhileAway,
        Code::RateLimited | Code::ResourceExhausted if is_repeatable => Repetition::UntilTaken,
        _ => Repetition::Never,
    }
}

async fn is_paused(command: &Detached) -> bool {
    command.sandbox().refresh().await.is_ok_and(|view| view.state == SandboxState::Paused)
}

/// Adds to a request the chunks that follow without a pause, up to its time and size.
async fn fill(input: &watch::Sender<RequestInput>, chunks: &mut mpsc::Receiver<Vec<u8>>) {
    let end = Instant::now() + REQUEST_TIME;
    while input.borrow().bytes.len() < REQUEST_BYTES {
        let next = timeout_at(end.min(Instant::now() + PAUSE), chunks.recv()).await;
        let Ok(Some(chunk)) = next else { break };
        input.send_modify(|input| input.bytes.extend_from_slice(&chunk));
    }
    input.send_modify(|input| input.is_complete = true);
}

/// The body of one attempt: the input of the request from its beginning.
fn pieces(input: watch::Receiver<RequestInput>) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    unfold((input, 0_usize), |(mut input, sent)| async move {
        let piece = {
            let is_new = |input: &RequestInput| input.is_complete || input.bytes.len() > sent;
            let input = input.wait_for(is_new).await.ok()?;
            let rest = &input.bytes[sent..];
            Bytes::copy_from_slice(&rest[..rest.len().min(PIECE_BYTES)])
        };
        let sent = sent + piece.len();
        (!piece.is_empty()).then_some((Ok::<_, io::Error>(piece), (input, sent)))
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
        if is_over(&command.status().await) {
            return;
        }
    }
}

/// Whether the command has ended, or its sandbox, or is no longer known. Other errors may pass.
fn is_over(status: &sandboxd_client::Result<ExecutionView>) -> bool {
    match status {
        Ok(view) => view.ended_at.is_some(),
        Err(error) => matches!(error.code(), Code::SandboxNotFound | Code::ExecutionNotFound),
    }
}

/// Forwards input in chunks.
fn forward_chunks(from: &mut impl Read, sender: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    let mut chunk = vec![0; READ_BYTES];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                if sender.blocking_send(chunk[..count].to_vec()).is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::JoinHandle;

    use futures_util::StreamExt;
    use sandboxd_client::Client;

    use super::*;

    const TAKEN: (u16, &str) = (200, r#"{"bytesWritten":1,"closed":false}"#);
    const BUSY: (u16, &str) = (503, r#"{"error":{"code":"RESOURCE_EXHAUSTED","message":"m"}}"#);
    const GONE: (u16, &str) = (404, r#"{"error":{"code":"EXECUTION_NOT_FOUND","message":"m"}}"#);
    /// The connection is closed after the request has arrived.
    const LOST: (u16, &str) = (0, "");

    /// A command on a service that gives these answers, each on a connection of its own. The thread returns the bodies of the requests.
    fn command(answers: &'static [(u16, &'static str)]) -> (Detached, JoinHandle<Vec<Vec<u8>>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || {
            let answer = |(status, body): &(u16, &str)| {
                let (mut socket, _) = listener.accept().unwrap();
                let received = read_body(&socket);
                if *status > 0 {
                    let head = "content-type: application/json\r\nconnection: close\r\ncontent-length:";
                    write!(socket, "HTTP/1.1 {status} x\r\n{head} {}\r\n\r\n{body}", body.len()).unwrap();
                }
                received
            };
            answers.iter().map(answer).collect()
        });
        let client = Client::builder().url(url).key("k").retries(0).build().unwrap();
        let sandbox = client.sandbox("sb_00000000").unwrap();
        (sandbox.execution("ex_00000000000000000000").unwrap(), serving)
    }

    /// The body of a request, which has chunks or is empty.
    fn read_body(socket: &TcpStream) -> Vec<u8> {
        let mut from = BufReader::new(socket);
        let (mut line, mut has_more, mut body) = (String::new(), false, Vec::new());
        while line != "\r\n" {
            line.clear();
            assert!(from.read_line(&mut line).unwrap() > 0, "the request was cut");
            has_more |= line.to_ascii_lowercase().starts_with("transfer-encoding: chunked");
        }
        while has_more {
            line.clear();
            from.read_line(&mut line).unwrap();
            let mut chunk = vec![0; usize::from_str_radix(line.trim(), 16).unwrap() + 2];
            from.read_exact(&mut chunk).unwrap();
            has_more = chunk.len() > 2;
            body.extend_from_slice(&chunk[..chunk.len() - 2]);
        }
        body
    }

    fn input(bytes: &'static [u8]) -> StreamedInput {
        StreamedInput { from: Box::new(bytes) }
    }

    #[tokio::test]
    async fn refused_input_is_sent_again() {
        let (command, serving) = command(&[BUSY, TAKEN, BUSY, TAKEN]);
        input(b"abc").write_stdin(&command).await.unwrap();
        assert_eq!(serving.join().unwrap(), [&b"abc"[..], b"abc", b"", b""]);
    }

    #[tokio::test]
    async fn input_waits_for_a_service_that_restarts() {
        let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let client = Client::builder().url(format!("http://{address}")).key("k").retries(0).build().unwrap();
        let sandbox = client.sandbox("sb_00000000").unwrap();
        let error = sandbox.execution("ex_00000000000000000000").unwrap().close_stdin().await.unwrap_err();
        let request = watch::Sender::new(RequestInput { bytes: Vec::new(), is_complete: true });
        assert_eq!(repetition(InputRequest::Write(&request), &error), Repetition::WhileAway);
    }

    /// What the command has got is not known.
    #[tokio::test]
    async fn input_whose_response_is_lost_is_not_sent_again() {
        let (command, serving) = command(&[LOST, GONE]);
        let error = input(b"abc").write_stdin(&command).await.unwrap_err();
        assert!(error.to_string().contains("cannot send standard input"), "{error:#}");
        assert_eq!(serving.join().unwrap(), [&b"abc"[..], b""]);
    }

    #[tokio::test]
    async fn closing_the_input_is_repeated() {
        let (command, serving) = command(&[LOST, TAKEN]);
        input(b"").write_stdin(&command).await.unwrap();
        assert_eq!(serving.join().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_command_that_is_not_known_is_over() {
        let (command, serving) = command(&[GONE, BUSY]);
        assert!(is_over(&command.status().await));
        assert!(!is_over(&command.status().await));
        serving.join().unwrap();
    }

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
        forward_chunks(&mut vec![7; READ_BYTES + 1].as_slice(), &sender).unwrap();
        drop(sender);
        let mut next = || chunks.blocking_recv().map(|chunk| chunk.len());
        assert_eq!([next(), next(), next()], [Some(READ_BYTES), Some(1), None]);
    }

    fn request(first: &[u8]) -> watch::Sender<RequestInput> {
        watch::Sender::new(RequestInput { bytes: first.to_vec(), is_complete: false })
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_at_a_pause_at_the_end_and_after_a_while() {
        let (sender, mut chunks) = mpsc::channel(8);
        sender.send(vec![2, 3]).await.unwrap();
        let (input, began) = (request(&[1]), Instant::now());
        fill(&input, &mut chunks).await;
        assert!(input.borrow().bytes == [1, 2, 3] && input.borrow().is_complete);
        assert_eq!(began.elapsed(), PAUSE);
        let trickling = tokio::spawn(async move {
            for _ in 0..20 {
                sleep(PAUSE / 2).await;
                sender.send(vec![0]).await.unwrap();
            }
        });
        let (input, began) = (request(&[1]), Instant::now());
        fill(&input, &mut chunks).await;
        assert!(input.borrow().bytes.len() < 20);
        assert_eq!(began.elapsed(), REQUEST_TIME);
        while chunks.recv().await.is_some() {}
        trickling.await.unwrap();
        let (input, began) = (request(&[1]), Instant::now());
        fill(&input, &mut chunks).await;
        assert_eq!((input.borrow().bytes.len(), began.elapsed()), (1, Duration::ZERO));
    }

    #[tokio::test]
    async fn a_request_has_a_bounded_size() {
        let (sender, mut chunks) = mpsc::channel(1000);
        for _ in 0..300 {
            sender.send(vec![0; READ_BYTES]).await.unwrap();
        }
        let input = request(&[1]);
        fill(&input, &mut chunks).await;
        let bytes = input.borrow().bytes.len();
        assert!((REQUEST_BYTES..REQUEST_BYTES + READ_BYTES).contains(&bytes), "{bytes}");
    }

    #[tokio::test]
    async fn each_attempt_sends_the_input_from_its_beginning_and_what_is_added() {
        let input = request(b"ab");
        let mut first = Box::pin(pieces(input.subscribe()));
        assert_eq!(first.next().await.unwrap().unwrap(), "ab");
        input.send_modify(|input| input.bytes.extend_from_slice(&[b'c'; PIECE_BYTES]));
        assert_eq!(first.next().await.unwrap().unwrap().len(), PIECE_BYTES);
        let second = pieces(input.subscribe());
        input.send_modify(|input| input.is_complete = true);
        assert!(first.next().await.is_none());
        let lengths: Vec<usize> = second.map(|piece| piece.unwrap().len()).collect().await;
        assert_eq!(lengths, [PIECE_BYTES, 2]);
    }
}
