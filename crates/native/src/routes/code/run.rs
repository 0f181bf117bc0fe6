//! `POST /v1/sandboxes/{id}/code`: runs code and responds when it has ended, or streams its output.
//!
//! A client that disconnects interrupts its code.

use std::collections::BTreeMap;

use admission::endpoint::{Content, INTERACT, Json, JsonBody, Parameter, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{CodeBody, CodeExecution, CodeRequest, ErrorCode, ExecuteRequest};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::ExternalExecution;
use serde_json::json;
use service::error::{OperationKind, invalid_interpreter};

use super::running::Running;
use super::{refusal, stream};
use crate::endpoint::{Call, Endpoint};
use crate::interpreter::{self, Reply};
use crate::routes::read;
use crate::routes::sandbox_request::SandboxRequest;

const CONTEXT: &str = "x-context-id";
const STREAM_EXAMPLE: &str = "event: stdout\ndata: {\"text\":\"hello\\n\"}\n\n\
    event: result\ndata: {\"isMainResult\":true,\"text\":\"2\"}\n\n\
    event: done\ndata: {\"executionCount\":1,\"contextId\":\"8e03978e-40d5-43dd-bc93-6894a57f9324\",\"durationMs\":6}\n\n";

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/code", INTERACT)
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
            Content::json::<CodeBody>()
                .combinations(json!({"not": {"required": ["contextId", "language"]}}))
                .example(json!({"code": "x = 1\nx + 1"})),
            "Only `code` is required. A repeated or `null` field is an error.",
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
            (ErrorCode::DiskFull, "The sandbox's disk is full"),
        ])
        .handler(run)
}

async fn run(call: Call<Caller, JsonBody<CodeBody>>) -> Result<Response, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Execute).await?;
    let wants_stream = reader::wants_stream(read::values(&call.parts.headers, header::ACCEPT));
    let body = request.body(body).await?;
    let (service, sandbox) = (&call.service, &request.sandbox);
    let mut code = sandbox.touched(body.read(&service.execute_rules))?;
    code.run_id = request.run_id()?;
    let mut memory = service.gate.output_memory.response(&sandbox.account);
    memory.start().await?;
    let text = document(&code)?;
    drop(body);
    let begun = sandbox.handle().begin_external(&as_command(&code)).await;
    let (admission, mut run) = begun.map_err(|error| sandbox.fault(error))?;
    let connected = interpreter::connect(admission).await;
    let connected = connected.inspect_err(|error| run.failed(&error.to_string()));
    let connection = connected.map_err(|error| error.of_sandbox(&sandbox.id))?;
    run.started();
    let asking = interpreter::request(connection, Method::POST, "/execute", Some(text));
    let reply = match run.within(asking).await {
        Some(reply) => reply.inspect_err(|error| run.failed(&error.message))?,
        None => return Err(late(&mut run)),
    };
    if reply.head.status != StatusCode::OK {
        // A hostile program may never end its response.
        let Some(error) = run.within(refusal(sandbox, reply, code.context_id.as_deref())).await else {
            return Err(late(&mut run));
        };
        run.failed(&error.message);
        return Err(error.with_detail("sandboxId", sandbox.id.as_str()));
    }
    let context_id = context_of(&reply, &code)?;
    let running =
        Running { run, reply, memory, context_id, execution_count: None, raised: false, truncated: false };
    if wants_stream {
        return Ok(stream::response(running, call.request_id, service.stopping.clone()));
    }
    let execution = running.collect(service.max_output_bytes).await?;
    Ok(Json::ok(&execution)?.into_response())
}

/// The code as events show it.
fn as_command(code: &CodeRequest) -> ExecuteRequest {
    ExecuteRequest {
        command: code.code.clone(),
        cwd: None,
        env: BTreeMap::new(),
        timeout_ms: code.timeout_ms,
        stdin: None,
        auto_resume: code.auto_resume,
        run_id: code.run_id.clone(),
        user: None,
    }
}

/// The request to the program inside.
fn document(code: &CodeRequest) -> Result<Bytes, ApiError> {
    let document = json!({
        "code": code.code,
        "context_id": code.context_id,
        "language": code.language,
        "env_vars": code.env,
    });
    admission::endpoint::serialize(&document)
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

fn late(run: &mut ExternalExecution) -> ApiError {
    let message = "the timeout of the code expired before the code interpreter answered; raise timeoutMs, or restart the context";
    run.failed(message);
    ApiError::new(ErrorCode::ExecutionTimeout, message)
}
