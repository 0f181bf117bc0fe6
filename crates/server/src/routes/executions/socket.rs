//! The conversation on a terminal's websocket.
//!
//! ```text
//! client --binary--> what is typed        --text--> resize, signal
//!        <--text---  position             <--binary-- what the terminal shows     <--text-- ended | error, then close
//! ```
//!
//! Two halves that do not wait for each other: a client that does not read stops what it is sent, while what it types still
//! arrives. Nothing is buffered but a message either way: output waits in the log on disk, and a connection that takes none for the
//! listener's write timeout breaks off. Whoever answers no ping for a minute is gone, unless it is we who do not read, because the
//! command takes no more.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{ErrorCode, SandboxId, TerminalControl, TerminalNote};
use engine::{Attachment, EngineError, ExecutionStatus, Input, OutputEvent, OutputReader, TerminalSize};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use listen::Taken;
use rules::OutputPosition;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use super::shown;
use crate::error::{ApiError, During, of_engine};
use crate::request_id::RequestId;
use crate::service::Service;

/// The largest message that is read; a terminal's client sends keys, or a clipboard.
const MESSAGE_BYTES: usize = 1 << 20;
/// So often it is looked whether the client and its key are still there.
const PING_EVERY: Duration = Duration::from_secs(5);
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// For the client's own goodbye.
const PATIENCE: Duration = Duration::from_secs(2);

type Socket = WebSocketStream<Taken>;

/// What a conversation is about.
pub struct Session {
    pub service: Arc<Service>,
    pub sandbox: SandboxId,
    pub source: Source,
    pub from: OutputPosition,
    /// Whether what is typed wakes the sandbox.
    pub auto_resume: bool,
    pub key_id: Arc<str>,
    pub request_id: RequestId,
}

/// Where the bytes come from.
pub enum Source {
    Attached(Attachment),
    /// Of one that has ended.
    Over(OutputReader),
}

/// Why it ends.
enum End {
    /// The client said so, or is not there any more.
    Left,
    Ended(Box<ExecutionStatus>),
    Failed(ApiError),
}

/// When the client was last heard; nothing while it is not listened to.
type Heard = Mutex<Option<Instant>>;

/// Speaks with the client to the end.
pub async fn converse(taken: Taken, session: Session) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES))
        .write_buffer_size(0);
    let socket = WebSocketStream::from_raw_socket(taken, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    let Session { service, sandbox, mut source, from, auto_resume, key_id, request_id } = session;
    let input = match &source {
        Source::Attached(attachment) => Some(attachment.input()),
        Source::Over(_) => None,
    };
    let output = match &mut source {
        Source::Attached(attachment) => &mut attachment.output,
        Source::Over(reader) => reader,
    };
    let rouse = || {
        if auto_resume {
            service.engine.wake_if_paused(&sandbox);
        }
    };
    let heard = Mutex::new(Some(Instant::now()));
    let end = tokio::select! {
        end = listening(&mut stream, input.as_ref(), rouse, &heard) => end,
        end = telling(&mut sink, output, from) => end,
        end = watching(&service, &key_id, &heard) => end,
    };
    // Asleep or awake, that is over: the last words may take a while.
    drop(source);
    let Some((note, close)) = last_words(end, &sandbox, &request_id) else { return };
    let goodbye = async {
        sink.send(self::note(&note)).await?;
        sink.send(Message::Close(Some(close))).await?;
        while stream.next().await.is_some_and(|message| message.is_ok()) {}
        Ok::<_, tokio_tungstenite::tungstenite::Error>(())
    };
    // One that is not heard is as good as said.
    let _ = tokio::time::timeout(PATIENCE, goodbye).await;
}

/// What the client sends, into the terminal.
async fn listening(
    stream: &mut SplitStream<Socket>,
    input: Option<&Input>,
    rouse: impl Fn(),
    heard: &Heard,
) -> End {
    while let Some(Ok(message)) = stream.next().await {
        set(heard, None);
        if message.is_binary() || message.is_text() {
            rouse();
        }
        let taken = match message {
            Message::Binary(bytes) => match input {
                Some(input) => input.write(&bytes).await,
                None => Ok(()),
            },
            Message::Text(text) => match control(input, &text).await {
                Ok(taken) => taken,
                Err(error) => return End::Failed(error),
            },
            Message::Close(_) => return End::Left,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(()),
        };
        match taken {
            // What comes too late; how it ended, the other half tells.
            Ok(()) | Err(EngineError::ExecutionEnded { .. } | EngineError::NoStdin { .. }) => {}
            Err(error) => return End::Failed(of_engine(error, None, During::Execute)),
        }
        set(heard, Some(Instant::now()));
    }
    End::Left
}

async fn control(input: Option<&Input>, text: &str) -> Result<Result<(), EngineError>, ApiError> {
    let refuse = |what: String| {
        let message = format!(
            "a message in text is {what}; allowed is {{\"resize\": {{\"cols\": 1 to 1000, \"rows\": 1 to 1000}}}} or {{\"signal\": \"SIGINT\"}}"
        );
        ApiError::new(ErrorCode::InvalidRequest, message)
    };
    let control: TerminalControl =
        serde_json::from_str(text).map_err(|error| refuse(format!("not understood ({error})")))?;
    let Some(input) = input else { return Ok(Ok(())) };
    if let Some(size) = control.resize {
        let fits = TerminalSize::new(size.cols, size.rows);
        let size = fits.ok_or_else(|| refuse(format!("a size of {} by {}", size.cols, size.rows)))?;
        if let Err(error) = input.resize(size).await {
            return Ok(Err(error));
        }
    }
    if let Some(name) = control.signal {
        let number = reader::signal_number(&name);
        let number = number.ok_or_else(|| refuse(format!("the signal {}", rules::shown(&name))))?;
        return Ok(input.signal(number).await);
    }
    Ok(Ok(()))
}

/// What the terminal shows, to the client. Pings go in between.
async fn telling(
    sink: &mut SplitSink<Socket, Message>,
    output: &mut OutputReader,
    from: OutputPosition,
) -> End {
    let mut pings = tokio::time::interval(PING_EVERY);
    let mut next = Some(position(from));
    loop {
        if let Some(message) = next.take()
            && sink.send(message).await.is_err()
        {
            return End::Left;
        }
        let followed = tokio::select! {
            biased;
            followed = output.next() => followed,
            _ = pings.tick() => {
                next = Some(Message::Ping(bytes::Bytes::new()));
                continue;
            }
        };
        next = match followed {
            // Without a terminal there would be a second stream.
            Ok(OutputEvent::Output { bytes, .. }) => Some(Message::Binary(bytes)),
            Ok(OutputEvent::Dropped { position: at }) => Some(position(at)),
            Ok(OutputEvent::Ended(status)) => return End::Ended(Box::new(status)),
            Err(error) => return End::Failed(of_engine(error, None, During::Execute)),
        };
    }
}

fn position(at: OutputPosition) -> Message {
    note(&TerminalNote { position: Some(at.stdout), ..TerminalNote::default() })
}

fn note(note: &TerminalNote) -> Message {
    // Texts and numbers have a JSON.
    Message::text(serde_json::to_string(note).unwrap_or_default())
}

/// Ends what may not go on.
async fn watching(service: &Service, key_id: &str, heard: &Heard) -> End {
    let mut looks = tokio::time::interval(PING_EVERY);
    loop {
        tokio::select! {
            () = service.stopping.cancelled() => {
                return End::Failed(of_engine(EngineError::Stopping, None, During::Execute));
            }
            _ = looks.tick() => {}
        }
        if !service.keyring.has(key_id) {
            return End::Failed(ApiError::new(ErrorCode::Unauthorized, "the API key was revoked"));
        }
        let last = *heard.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() > LONGEST_SILENCE) {
            return End::Left;
        }
    }
}

fn set(heard: &Heard, to: Option<Instant>) {
    *heard.lock().unwrap_or_else(PoisonError::into_inner) = to;
}

/// The last message and the reason of the close frame; nothing for who is not there.
fn last_words(end: End, sandbox: &SandboxId, request_id: &RequestId) -> Option<(TerminalNote, CloseFrame)> {
    let error = match end {
        End::Left => return None,
        End::Ended(status) => {
            let view = shown::view(sandbox, *status);
            let reason = match (&view.exit_code, &view.signal) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("killed by {signal}"),
                (None, None) => "it did not start, or was lost".to_owned(),
            };
            let close = CloseFrame { code: CloseCode::Normal, reason: reason.into() };
            return Some((TerminalNote { ended: Some(view), ..TerminalNote::default() }, close));
        }
        End::Failed(error) => error,
    };
    if let Some(cause) = error.cause_text() {
        tracing::error!(request_id = %request_id.0, cause, "a terminal's websocket failed");
    }
    let code = match error.code {
        ErrorCode::ResourceExhausted => CloseCode::Restart,
        ErrorCode::InvalidRequest | ErrorCode::Unauthorized => CloseCode::Policy,
        _ => CloseCode::Error,
    };
    let close = CloseFrame { code, reason: error.code.as_str().into() };
    Some((TerminalNote { error: Some(error.object(&request_id.0)), ..TerminalNote::default() }, close))
}
