//! `POST /v1/sandboxes/{id}/code`: runs code and responds when it has ended, or streams its output.
//!
//! A client that disconnects interrupts its code.

use api::{CodeBody, CodeException, CodeExecution, CodeRequest, ErrorCode};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::CodeRun;
use rules::CappedOutput;
use serde_json::json;

use super::stream;
use crate::endpoint::{Call, Content, EXECUTE, Endpoint, Json, JsonBody, Parameter, Tag};
use crate::error::{ApiError, OperationKind, invalid_interpreter, of_engine};
use crate::interpreter::{self, Event, Reply};
use crate::keyring::Caller;
use crate::output::{OutputReservation, cover};
use crate::routes::read;
use crate::routes::sandbox_request::SandboxRequest;

const CONTEXT: &str = "x-context-id";
const STREAM_EXAMPLE: &str = "event: stdout\ndata: {\"text\":\"hello\\n\"}\n\n\
    event: result\ndata: {\"isMainResult\":true,\"text\":\"2\"}\n\n\
    event: done\ndata: {\"executionCount\":1,\"contextId\":\"8e03978e-40d5-43dd-bc93-6894a57f9324\",\"durationMs\":6}\n\n";

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/code", EXECUTE)
        .describe(
            "runCode",
            Tag::Code,
            "Run code",
            "Runs code in the sandbox's code interpreter, which is started with the first request. Without \
             `Accept: text/event-stream` the response is sent when the code has ended; its status is `200` \
             even if the code raises an exception or is interrupted at its timeout. With that header the \
             response is a stream of Server-Sent Events: `stdout` and `stderr` (`{\"text\": …}`), `result` (a \
             `CodeResult`), `exception` (a `CodeException`), then `done` (a `CodeDone`), or `error` (an \
             `ErrorObject`) if the outcome is unknown. If the client disconnects, the code is interrupted.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::RUN_ID.describe("The run to which the code's events belong."),
        ])
        .json_body::<CodeBody>(
            16 << 20,
            Content::json::<CodeBody>().example(json!({"code": "x = 1\nx + 1"})),
            "Only `code` is required. Unknown fields are ignored; a repeated or `null` field is an error.",
        )
        .responds(
            StatusCode::OK,
            "The outcome of the code, or the stream of its events.",
            [
                Content::json::<CodeExecution>().example(json!({
                    "stdout": "", "stderr": "", "results": [{"isMainResult": true, "text": "2"}],
                    "exception": null, "executionCount": 1,
                    "contextId": "8e03978e-40d5-43dd-bc93-6894a57f9324", "durationMs": 6,
                })),
                Content::events().example(json!(STREAM_EXAMPLE)),
            ],
        )
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed, or the image has no kernel for the language"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::ContextNotFound, "The context does not exist"),
            (ErrorCode::ExecutionTimeout, "The timeout expired before the code started"),
            (ErrorCode::NoInterpreter, "The image has no code interpreter"),
            (ErrorCode::InvalidState, "The sandbox is not `running`, and `autoResume` is `false` or does not apply"),
            (ErrorCode::ExecutionError, "The sandbox or its code interpreter failed"),
        ])
        .handler(run)
}

async fn run(call: Call<Caller, JsonBody<CodeBody>>) -> Result<Response, ApiError> {
    let Call { service, caller, request_id, path, parts, body, .. } = call;
    let request = SandboxRequest::find(&service, &caller, &parts, path, OperationKind::Execute).await?;
    let wants_stream = reader::wants_stream(read::values(&parts.headers, header::ACCEPT));
    let body = request.body(body).await?;
    let sandbox = service.engine.sandbox(&caller.account, &request.id);
    let mut code = body.read(&service.execute_rules).inspect_err(|_| sandbox.touch())?;
    code.run_id = request.run_id()?;
    let mut memory = service.output_memory.response(&caller.account);
    memory.start().await?;
    let text = document(&code)?;
    drop(body);
    let (connection, mut run) = sandbox
        .run_code(&code)
        .await
        .map_err(|error| of_engine(error, Some(request.id.as_str()), OperationKind::Execute))?;
    let asking = interpreter::request(connection, Method::POST, "/execute", Some(text));
    let reply = match run.within(asking).await {
        Some(reply) => reply.inspect_err(|error| run.failed(&error.message))?,
        None => return Err(late(&mut run)),
    };
    if reply.head.status != StatusCode::OK {
        let error = reply.refusal(code.context_id.as_deref()).await;
        run.failed(&error.message);
        return Err(error.with_detail("sandboxId", request.id.as_str()));
    }
    let context_id = context_of(&reply, &code)?;
    let running = Running { run, reply, memory, context_id, execution_count: None, raised: false };
    if wants_stream {
        return Ok(stream::response(running, request_id, service.stopping.clone()));
    }
    let execution = running.collect(service.max_output_bytes).await?;
    Ok(Json::ok(&execution)?.into_response())
}

/// The request to the program inside.
fn document(code: &CodeRequest) -> Result<Bytes, ApiError> {
    let document = json!({
        "code": code.code,
        "context_id": code.context_id,
        "language": code.language,
        "env_vars": code.env,
    });
    crate::endpoint::serialize(&document)
}

/// The context in which the code runs, as the program inside names it.
fn context_of(reply: &Reply, code: &CodeRequest) -> Result<String, ApiError> {
    let named = reply.head.headers.get(CONTEXT).and_then(|id| id.to_str().ok());
    let id = named.or(code.context_id.as_deref()).unwrap_or("default");
    if rules::is_context_id(id) {
        Ok(id.to_owned())
    } else {
        Err(invalid_interpreter("the id of its context is malformed"))
    }
}

fn late(run: &mut CodeRun) -> ApiError {
    let message = "the timeout of the code expired before the code interpreter answered; raise timeoutMs, or restart the context";
    run.failed(message);
    ApiError::new(ErrorCode::ExecutionTimeout, message)
}

/// Code that runs. Dropping it interrupts the code.
pub struct Running {
    pub run: CodeRun,
    pub reply: Reply,
    pub memory: OutputReservation,
    pub context_id: String,
    pub execution_count: Option<u64>,
    raised: bool,
}

/// The next thing that the code did.
pub enum Step {
    Event(Event),
    /// All output was read. The duration in ms.
    End(u64),
}

impl Running {
    /// Cancel safe.
    pub async fn step(&mut self) -> Result<Step, ApiError> {
        let next = self.reply.next(&mut self.memory);
        let event = match self.run.within(next).await {
            Some(Ok(Some(event))) => event,
            Some(Ok(None)) => {
                let error = invalid_interpreter("it ended its response before the code");
                self.run.failed(&error.message);
                return Err(error);
            }
            Some(Err(error)) => {
                self.run.failed(&error.message);
                return Err(error);
            }
            None => return Ok(Step::Event(self.timed_out())),
        };
        Ok(self.seen(event))
    }

    /// The next step if it is here already.
    pub fn ready(&mut self) -> Option<Result<Step, ApiError>> {
        Some(self.reply.ready()?.map(|event| self.seen(event)))
    }

    fn seen(&mut self, event: Event) -> Step {
        match &event {
            Event::Stdout { text } => self.run.count(text.len(), 0),
            Event::Stderr { text } => self.run.count(0, text.len()),
            Event::NumberOfExecutions { execution_count } => self.execution_count = *execution_count,
            Event::Error(_) => self.raised = true,
            Event::EndOfExecution => return Step::End(self.run.completed(self.raised)),
            Event::Result(_) | Event::Other => {}
        }
        Step::Event(event)
    }

    /// The code is interrupted when this is dropped, so no more events are read.
    fn timed_out(&mut self) -> Event {
        self.reply.end();
        self.raised = true;
        let value = "the code did not end within its timeoutMs and was interrupted".to_owned();
        Event::Error(CodeException { name: "Timeout".to_owned(), value, traceback: String::new() })
    }

    async fn collect(mut self, max_output_bytes: usize) -> Result<CodeExecution, ApiError> {
        let (mut stdout, mut stderr) =
            (CappedOutput::new(max_output_bytes), CappedOutput::new(max_output_bytes));
        let (mut results, mut exception, mut kept) = (Vec::new(), None, 0);
        let duration_ms = loop {
            let before = self.reply.received();
            match self.step().await? {
                Step::End(duration_ms) => break duration_ms,
                Step::Event(Event::Stdout { text }) => stdout.push(text.as_bytes()),
                Step::Event(Event::Stderr { text }) => stderr.push(text.as_bytes()),
                Step::Event(Event::Result(result)) => results.push(interpreter::result(result)?),
                Step::Event(Event::Error(error)) => exception = Some(error),
                Step::Event(_) => {}
            }
            kept += self.reply.received() - before;
            // What is kept, and its copy as JSON.
            cover(&mut self.memory, kept * 2).await.inspect_err(|error| self.run.failed(&error.message))?;
        };
        Ok(CodeExecution {
            stdout: stdout.finish().into_text(),
            stderr: stderr.finish().into_text(),
            results,
            exception,
            execution_count: self.execution_count,
            context_id: std::mem::take(&mut self.context_id),
            duration_ms,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only the first end of an execution is recorded.
        self.run.failed("its client disconnected or the daemon stopped, so the code was interrupted");
    }
}
