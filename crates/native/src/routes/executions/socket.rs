//! The websocket of a terminal.
//!
//! ```text
//! client --binary--> input                --text--> resize, signal
//!        <--text---  position, warning    <--binary-- output                      <--text-- ended | error, then close
//! ```
//!
//! Input and output do not wait for each other: input of a client that does not read still arrives. At most one message is buffered
//! in each direction. Output waits in the log on disk, and a connection that takes none for the listener's write timeout is closed.
//! A client that answers no ping for a minute is disconnected, except while its input is not read because the command does not
//! read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::error::ApiError;
use admission::request_id::RequestId;
use api::bounds::{COLS, ROWS};
use api::{ErrorCode, SandboxId, TerminalControl, TerminalNote, TerminalWarning};
use base::IgnorePoison;
use engine::{
    Attachment, DaemonError, EngineError, ExecutionError, ExecutionStatus, ExpiryWarning, ExpiryWarnings,
    Input, OutputEvent, OutputReader, TerminalSize,
};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use listen::UpgradedStream;
use rules::{AutoResume, OutputPosition};
use service::Service;
use service::error::{OperationKind, key_ended, of_engine};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use super::view::execution_view;

/// The largest input message: key presses, or pasted text.
const MESSAGE_BYTES: usize = 1 << 20;
/// Interval of pings and of checks of the client and its key.
const PING_EVERY: Duration = Duration::from_secs(5);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for the client's close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

type Socket = WebSocketStream<UpgradedStream>;

/// The parameters of a session.
pub struct Session {
    pub service: Arc<Service>,
    pub sandbox: SandboxId,
    pub source: OutputSource,
    pub from: OutputPosition,
    /// None for an ended execution.
    pub warnings: Option<ExpiryWarnings>,
    /// Whether input resumes the sandbox.
    pub auto_resume: AutoResume,
    pub key_id: Arc<str>,
    pub request_id: RequestId,
}

/// The source of the output.
pub enum OutputSource {
    Attached(Attachment),
    /// The log of an ended execution.
    Ended(OutputReader),
}

/// Why a session ends.
enum End {
    /// The client closed the connection or disconnected.
    Disconnected,
    Ended(Box<ExecutionStatus>),
    Failed(ApiError),
}

/// When the client's last message arrived; `None` while input is not read.
type LastHeard = Mutex<Option<Instant>>;

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES))
        .write_buffer_size(0)
}

/// Serves the websocket until it ends.
pub async fn serve_websocket(connection: UpgradedStream, session: Session) {
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config())).await;
    let (mut sink, mut stream) = socket.split();
    let Session { service, sandbox, mut source, from, mut warnings, auto_resume, key_id, request_id } =
        session;
    let input = match &source {
        OutputSource::Attached(attachment) => Some(attachment.input()),
        OutputSource::Ended(_) => None,
    };
    let output = match &mut source {
        OutputSource::Attached(attachment) => &mut attachment.output,
        OutputSource::Ended(reader) => reader,
    };
    let resume = || {
        if auto_resume == AutoResume::Allowed {
            service.engine.wake_if_paused(&sandbox);
        }
    };
    let heard = Mutex::new(Some(Instant::now()));
    let end = tokio::select! {
        end = receive_input(&mut stream, input.as_ref(), resume, &heard) => end,
        end = send_output(&mut sink, output, from, &mut warnings) => end,
        end = watch_session(&service, &key_id, &heard) => end,
    };
    // Detaches before the close handshake, which may take a while: an attached client postpones the automatic pause.
    drop(source);
    let Some((note, close)) = closing_messages(end, &sandbox, &request_id) else { return };
    let close_handshake = async {
        sink.send(self::note(&note)).await?;
        sink.send(Message::Close(Some(close))).await?;
        while stream.next().await.is_some_and(|message| message.is_ok()) {}
        Ok::<_, tokio_tungstenite::tungstenite::Error>(())
    };
    // A client that does not take the last message is ignored.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, close_handshake).await;
}

/// Passes the client's messages to the terminal.
async fn receive_input(
    stream: &mut SplitStream<Socket>,
    input: Option<&Input>,
    resume: impl Fn(),
    heard: &LastHeard,
) -> End {
    while let Some(Ok(message)) = stream.next().await {
        set(heard, None);
        if message.is_binary() || message.is_text() {
            resume();
        }
        let written = match message {
            Message::Binary(bytes) => match input {
                Some(input) => input.write(&bytes).await,
                None => Ok(()),
            },
            Message::Text(text) => match control(input, &text).await {
                Ok(written) => written,
                Err(error) => return End::Failed(error),
            },
            Message::Close(_) => return End::Disconnected,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(()),
        };
        match written {
            // Input after the end is ignored; `send_output` reports the result.
            Ok(())
            | Err(EngineError::Execution(ExecutionError::Ended { .. } | ExecutionError::NoStdin { .. })) => {}
            Err(error) => return End::Failed(of_engine(error, None, OperationKind::Execute)),
        }
        set(heard, Some(Instant::now()));
    }
    End::Disconnected
}

async fn control(input: Option<&Input>, text: &str) -> Result<Result<(), EngineError>, ApiError> {
    let refuse = |what: String| {
        let message = format!(
            "a text message is {what}; allowed: {{\"resize\": {{\"cols\": {} to {}, \"rows\": {} to {}}}}} or {{\"signal\": \"SIGINT\"}}",
            COLS.min, COLS.max, ROWS.min, ROWS.max
        );
        ApiError::new(ErrorCode::InvalidRequest, message)
    };
    let control: TerminalControl =
        serde_json::from_str(text).map_err(|error| refuse(format!("malformed ({error})")))?;
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
        let number = number.ok_or_else(|| refuse(format!("the signal {}", rules::quoted(&name))))?;
        return Ok(input.signal(number).await);
    }
    Ok(Ok(()))
}

/// Sends the terminal's output, warnings and pings to the client.
async fn send_output(
    sink: &mut SplitSink<Socket, Message>,
    output: &mut OutputReader,
    from: OutputPosition,
    warnings: &mut Option<ExpiryWarnings>,
) -> End {
    let mut pings = tokio::time::interval(PING_EVERY);
    let mut next = Some(position(from));
    loop {
        if let Some(message) = next.take()
            && sink.send(message).await.is_err()
        {
            return End::Disconnected;
        }
        let followed = tokio::select! {
            biased;
            // Not behind output, which may never end.
            warning = next_warning(warnings) => {
                next = Some(self::warning(warning));
                continue;
            }
            followed = output.next() => followed,
            _ = pings.tick() => {
                next = Some(Message::Ping(bytes::Bytes::new()));
                continue;
            }
        };
        next = match followed {
            // A terminal has only one output stream.
            Ok(OutputEvent::Output { bytes, .. }) => Some(Message::Binary(bytes)),
            Ok(OutputEvent::Dropped { position: at }) => Some(position(at)),
            Ok(OutputEvent::Ended(status)) => return End::Ended(status),
            Err(error) => return End::Failed(of_engine(error, None, OperationKind::Execute)),
        };
    }
}

async fn next_warning(warnings: &mut Option<ExpiryWarnings>) -> ExpiryWarning {
    match warnings {
        Some(warnings) => warnings.next().await,
        None => std::future::pending().await,
    }
}

fn warning(warning: ExpiryWarning) -> Message {
    let warning = TerminalWarning { message: warning.message, expires_at: warning.expires_at.into() };
    note(&TerminalNote { warning: Some(warning), ..TerminalNote::default() })
}

fn position(at: OutputPosition) -> Message {
    note(&TerminalNote { position: Some(at.stdout), ..TerminalNote::default() })
}

fn note(note: &TerminalNote) -> Message {
    // Serializing text and numbers cannot fail.
    Message::text(serde_json::to_string(note).unwrap_or_default())
}

/// Ends the session at shutdown, when the key is revoked, or when the client is silent.
async fn watch_session(service: &Service, key_id: &str, heard: &LastHeard) -> End {
    let mut checks = tokio::time::interval(PING_EVERY);
    loop {
        tokio::select! {
            () = service.stopping.cancelled() => {
                return End::Failed(of_engine(EngineError::Daemon(DaemonError::Stopping), None, OperationKind::Execute));
            }
            _ = checks.tick() => {}
        }
        if !service.gate.keyring.has(key_id) {
            return End::Failed(key_ended());
        }
        let last = *heard.lock().ignore_poison();
        if last.is_some_and(|last| last.elapsed() > SILENCE_TIMEOUT) {
            return End::Disconnected;
        }
    }
}

fn set(heard: &LastHeard, to: Option<Instant>) {
    *heard.lock().ignore_poison() = to;
}

/// The last message and the close frame; `None` if the client has disconnected.
fn closing_messages(
    end: End,
    sandbox: &SandboxId,
    request_id: &RequestId,
) -> Option<(TerminalNote, CloseFrame)> {
    let error = match end {
        End::Disconnected => return None,
        End::Ended(status) => {
            let view = execution_view(sandbox, *status);
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

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;
    use crate::testing::websocket::check_bombs;

    #[test]
    fn a_bomb_takes_no_more_than_a_few_times_the_longest_message() {
        check_bombs(Role::Server, config(), |work| measure(work).bytes_max).unwrap();
    }
}
