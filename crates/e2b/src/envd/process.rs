//! The service `process.Process`: processes of the sandbox, over the engine's functions.
//!
//! Called by the router of this module. A client that disconnects leaves the process running; only its deadline, a signal or the
//! end of the sandbox ends it.

mod messages;
mod output;

use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use engine::{Input, ProcessRequest, ProcessSelector};
use rules::AutoResume;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::call::{EnvdCall, granted_stream, stream_response, while_granted};
use super::connect::{
    CallOptions, Code, Envelope, EnvelopeReader, MAX_MESSAGE, MAX_SHORT_MESSAGE, RpcError, end_of_stream,
    message, next_chunk, single_message, unary_message,
};
use super::failure::Failure;
use super::proto_json::parse;
use super::target::Target;
use messages::{
    InputBytes, ProcessOnly, SendInputRequest, SendSignalRequest, Signal, StartRequest, StreamInputRequest,
    UpdateRequest,
};
use output::Output;

const SIGTERM: i32 = 15;
/// How long one message of a stream of inputs may take to arrive.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// A unary method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    List,
    SendInput,
    CloseStdin,
    SendSignal,
    Update,
}

/// Runs a unary method.
pub async fn unary(call: EnvdCall, method: Unary) -> Result<Value, Failure> {
    let EnvdCall { target, options, body, .. } = call;
    let max_bytes = if method == Unary::SendInput { MAX_MESSAGE } else { MAX_SHORT_MESSAGE };
    let json = unary_message(body, &target.buffers(), max_bytes).await?;
    within(options.timeout, async {
        match method {
            Unary::List => {
                let processes = target.sandbox().processes().await.map_err(Failure::of)?;
                return Ok(messages::list(&processes));
            }
            Unary::SendInput => {
                let request: SendInputRequest = parse(&json)?;
                let input = ProcessInput::open(&target, request.process.get()?).await?;
                input.write(request.input.into_bytes()).await?;
            }
            Unary::CloseStdin => {
                let request: ProcessOnly = parse(&json)?;
                open_input(&target, request.process.get()?).await?.close().await.map_err(Failure::of)?;
            }
            Unary::SendSignal => {
                let request: SendSignalRequest = parse(&json)?;
                let input = open_input(&target, request.process.get()?).await?;
                let sent = match request.signal()? {
                    Signal::Kill => input.kill().await,
                    Signal::Terminate => input.signal(SIGTERM).await,
                };
                sent.map_err(Failure::of)?;
            }
            Unary::Update => {
                let request: UpdateRequest = parse(&json)?;
                let input = open_input(&target, request.process.get()?).await?;
                if let Some(pty) = request.pty {
                    input.resize(pty.size()?).await.map_err(Failure::of)?;
                }
            }
        }
        Ok(json!({}))
    })
    .await
}

/// Starts a process and streams its output.
pub async fn start(call: EnvdCall) -> Result<Response, Failure> {
    let EnvdCall { target, user, options, body, grant } = call;
    // Kept until the process has its arguments: it counts for them.
    let json = single_message(body, &target.buffers(), MAX_MESSAGE).await?;
    let request: StartRequest = parse(&json)?;
    let mut argv = vec![request.process.cmd];
    argv.extend(request.process.args);
    let terminal = request.pty.map(|pty| pty.size()).transpose()?;
    let cwd = request.process.cwd.filter(|cwd| !cwd.is_empty()).or_else(|| target.defaults.workdir_of(&user));
    let process = ProcessRequest {
        argv,
        env: request.process.envs,
        cwd: cwd.clone(),
        user: user.clone(),
        stdin: request.stdin.unwrap_or(true),
        terminal,
        tag: request.tag,
        timeout_ms: options.timeout.map(|timeout| base::millis(timeout).max(1)),
        auto_resume: false,
        run_id: None,
    };
    let started = target.sandbox().start_process(process).await.map_err(|error| {
        let is_cwd = matches!(
            &error,
            engine::EngineError::Process(engine::ProcessError::Refused {
                refusal: engine::ProcessRefusal::CwdMissing,
                ..
            })
        );
        let failure =
            Failure::of(error).reworded(Code::Unauthenticated, || format!("invalid username: '{user}'"));
        match cwd {
            Some(cwd) if is_cwd => Failure::new(Code::InvalidArgument, format!("cwd '{cwd}' does not exist")),
            _ => failure,
        }
    })?;
    // The engine enforces the deadline of the process.
    let options = CallOptions { timeout: None, ..options };
    Ok(granted_stream(Output::new(target.clone(), started, options).into_stream(), target, grant))
}

/// Streams the output of a process from now on.
pub async fn connect(call: EnvdCall) -> Result<Response, Failure> {
    let EnvdCall { target, options, body, grant, .. } = call;
    let request: ProcessOnly = parse(&single_message(body, &target.buffers(), MAX_SHORT_MESSAGE).await?)?;
    let found = target.sandbox().connect_process(request.process.get()?).await.map_err(Failure::of)?;
    Ok(granted_stream(Output::new(target.clone(), found, options).into_stream(), target, grant))
}

/// Writes a stream of inputs to one process.
pub async fn stream_input(call: EnvdCall) -> Result<Response, Failure> {
    let EnvdCall { target, options, body, grant, .. } = call;
    within(options.timeout, while_granted(&target, &grant, forward_input(&target, body))).await?;
    let frames = [message(b"{}"), end_of_stream(None)];
    Ok(stream_response(futures_util::stream::iter(frames.map(Ok))))
}

async fn forward_input(target: &Target, mut body: Body) -> Result<(), Failure> {
    let mut reader = EnvelopeReader::new(target.buffers(), MAX_MESSAGE);
    let mut input = None;
    let mut message_deadline = None;
    while let Some(mut chunk) = next_in_time(&mut body, message_deadline).await? {
        while let Some(envelope) = reader.next(&mut chunk).await? {
            message_deadline = None;
            let Envelope::Message(json) = envelope else { continue };
            forward_message(target, &mut input, &json).await?;
        }
        if reader.is_within_message() && message_deadline.is_none() {
            message_deadline = Some(Instant::now() + MESSAGE_TIMEOUT);
        }
    }
    reader.finish()?;
    Ok(())
}

/// The next bytes. Between messages a client may be silent; a message that has begun holds memory.
async fn next_in_time(body: &mut Body, deadline: Option<Instant>) -> Result<Option<Bytes>, RpcError> {
    let Some(deadline) = deadline else { return next_chunk(body).await };
    tokio::time::timeout_at(deadline, next_chunk(body)).await.unwrap_or_else(|_| {
        let seconds = MESSAGE_TIMEOUT.as_secs();
        let message =
            format!("a message was not complete within {seconds} s; send it faster, or in several ones");
        Err(RpcError::new(Code::DeadlineExceeded, message))
    })
}

async fn forward_message(
    target: &Target,
    input: &mut Option<ProcessInput>,
    json: &Bytes,
) -> Result<(), Failure> {
    let request: StreamInputRequest = parse(json)?;
    if let Some(start) = request.start {
        *input = Some(ProcessInput::open(target, start.process.get()?).await?);
    }
    let Some(data) = request.data else { return Ok(()) };
    let Some(input) = input else {
        return Err(RpcError::invalid("the first message has no 'start'").into());
    };
    input.write(data.input.into_bytes()).await
}

/// The input of a process, and which kind it is.
struct ProcessInput {
    input: Input,
    is_terminal: bool,
}

impl ProcessInput {
    async fn open(target: &Target, process: ProcessSelector<'_>) -> Result<Self, Failure> {
        // Without a reader of the output: the process would wait for it to come back.
        let input = open_input(target, process).await?;
        Ok(Self { is_terminal: input.is_terminal(), input })
    }

    async fn write(&self, bytes: Option<InputBytes>) -> Result<(), Failure> {
        let bytes = match (bytes, self.is_terminal) {
            (None, _) => return Ok(()),
            (Some(InputBytes::Stdin(bytes)), false) | (Some(InputBytes::Terminal(bytes)), true) => bytes,
            (Some(InputBytes::Stdin(_)), true) => {
                return Err(Failure::new(Code::Internal, "the process has a terminal instead of stdin"));
            }
            (Some(InputBytes::Terminal(_)), false) => {
                return Err(Failure::new(Code::Internal, "the process has no terminal"));
            }
        };
        self.input.write(&bytes).await.map_err(Failure::of)
    }
}

async fn open_input(target: &Target, process: ProcessSelector<'_>) -> Result<Input, Failure> {
    target.sandbox().process_input(process, AutoResume::Forbidden).await.map_err(Failure::of)
}

async fn within<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match timeout {
        None => work.await,
        Some(timeout) => tokio::time::timeout(timeout, work)
            .await
            .map_err(|_| Failure::new(Code::DeadlineExceeded, "the deadline of the call is over"))?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_deadline_waits_and_another_one_ends_at_it() {
        let hour = Duration::from_secs(3600);
        let work = || async {
            tokio::time::sleep(hour).await;
            Ok::<_, Failure>(7)
        };
        assert_eq!(within(None, work()).await.unwrap(), 7);
        assert_eq!(within(Some(hour + Duration::from_secs(1)), work()).await.unwrap(), 7);
        let began = Instant::now();
        let late = within(Some(Duration::from_secs(2)), work()).await.unwrap_err();
        assert_eq!((late.code(), began.elapsed().as_secs()), (Some(Code::DeadlineExceeded), 2));
        let failed = within(Some(hour), async { Err::<(), _>(Failure::NotRunning) }).await;
        assert_eq!(failed.unwrap_err(), Failure::NotRunning);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_be_silent_between_messages_but_not_within_one() {
        let late = || {
            let chunk = async {
                tokio::time::sleep(Duration::from_secs(7200)).await;
                Ok::<_, std::io::Error>(Bytes::from_static(b"x"))
            };
            Body::from_stream(stream::once(chunk))
        };
        let between = next_in_time(&mut late(), None).await;
        assert_eq!(between.unwrap().as_deref(), Some(&b"x"[..]));
        let began = Instant::now();
        let error = next_in_time(&mut late(), Some(began + MESSAGE_TIMEOUT)).await.unwrap_err();
        assert_eq!((error.code, began.elapsed().as_secs()), (Code::DeadlineExceeded, 60));
        assert!(error.message.contains("within 60 s"), "{error}");
        let end = next_in_time(&mut Body::empty(), Some(began + MESSAGE_TIMEOUT + MESSAGE_TIMEOUT)).await;
        assert_eq!(end.unwrap(), None);
    }
}
