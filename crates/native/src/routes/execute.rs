//! `POST /v1/sandboxes/{id}/execute`: runs a command and responds when it has ended, or streams its output, or detaches it.
//!
//! A client that disconnects ends its command, unless the request has an idempotency key: then the response may be requested
//! again.

use admission::endpoint::{Content, EXECUTE, JsonBody, Parameter, Received, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{CommandBody, ErrorCode, ExecuteRequest, ExecutionResult, ExecutionView, OutputEncoding, RunId};
use axum::http::{StatusCode, header};
use axum::response::Response;
use engine::Execution;
use reader::ValidatedCommand;
use serde_json::json;
use service::error::OperationKind;
use service::idempotency::ReplayableResponse;
use service::output::{self, CollectError};

use super::executions::detach;
use super::requested_sandbox::RequestedSandbox;
use super::sandbox_request::SandboxRequest;
use super::{read, stream};
use crate::endpoint::{Call, Endpoint};

const STREAM_EXAMPLE: &str = "event: stdout\ndata: hello\n\n\
    event: done\ndata: {\"exitCode\":0,\"durationMs\":3,\"signal\":null}\n\n";

const ERRORS: [(ErrorCode, &str); 7] = [
    (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
    (ErrorCode::InvalidConfig, "A value is out of its range"),
    (ErrorCode::CommandTooLong, "The command is longer than 65,536 bytes"),
    (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
    (ErrorCode::ExecutionTimeout, "The timeout expired before the command started"),
    (ErrorCode::InvalidState, "The sandbox is not `running`, and `autoResume` is `false` or does not apply"),
    (ErrorCode::ExecutionError, "The sandbox failed while the command ran"),
];

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/execute", EXECUTE)
        .describe(
            "execute",
            Tag::Commands,
            "Run a command",
            "Runs the command with bash. Without `Accept: text/event-stream` the response is sent when the \
             command has ended; its status is `200` even if the command fails or is killed at its timeout. \
             With that header the response is a stream of Server-Sent Events: `stdout` and `stderr` (one \
             line each), then `done` (a `Done` object), or `error` (an `ErrorObject`) if the outcome is \
             unknown. A paused sandbox is resumed first unless `autoResume` is `false`. If the client \
             disconnects, the command is killed, unless the request has an `Idempotency-Key`.\n\nWith \
             `\"detached\": true` the response is `201` immediately, regardless of `Accept`, and the \
             command continues without its client: see \"Executions\".",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::IDEMPOTENCY_KEY.describe(
                "Same as for create. Ignored for streams. A command with a key continues if its client \
             disconnects.",
            ),
            Parameter::RUN_ID.describe("The run to which the command's events belong."),
            Parameter::flag(
                "lineEnds",
                "`true` for a stream from which a client can rebuild the output byte for byte. An \
                 event whose line did not end with just a line feed has a field `end` after its data: \
                 `crlf`, or `none` for a part of a longer line and for an unterminated last line. A \
                 line feed within the data stands for a carriage return.",
            ),
            Parameter::ENCODING,
        ])
        .json_body::<CommandBody>(
            16 << 20,
            Content::json::<CommandBody>().example(json!({
                "command": "echo hello",
                "cwd": "/workspace",
                "env": {"GREETING": "hi"},
                "timeoutMs": 60000,
            })),
            "Only `command` is required. A repeated or `null` field \
             is an error.",
        )
        .responds(
            StatusCode::OK,
            "The result of the command, or the stream of its events.",
            [
                Content::json::<ExecutionResult>().example(json!({
                    "durationMs": 3,
                    "exitCode": 0,
                    "signal": null,
                    "stderr": "",
                    "stdout": "hello\n",
                })),
                Content::events().example(json!(STREAM_EXAMPLE)),
            ],
        )
        .replayable()
        .responds(
            StatusCode::CREATED,
            "The detached command has started.",
            [Content::json::<ExecutionView>()],
        )
        .header("Location", "Path of the execution.")
        .replayable()
        .errors(ERRORS)
        .handler(execute)
}

async fn execute(call: Call<Caller, JsonBody<CommandBody>>) -> Result<Response, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Execute).await?;
    let wants_stream = reader::wants_stream(read::values(&call.parts.headers, header::ACCEPT));
    let body = request.body(body).await?;
    let context = CommandContext { sandbox: request.sandbox.clone(), run_id: request.run_id()? };
    let form = reader::output_form(call.parts.uri.query())?;
    // Streams are not recorded, so they ignore the idempotency key.
    if wants_stream && let ValidatedCommand::Attached(request) = context.read(&body)? {
        let execution = context.start(request).await?;
        return Ok(stream::response(
            execution.streamed(),
            form,
            call.request_id,
            call.service.stopping.clone(),
        ));
    }
    let key = request.key()?;
    let encoding = form.encoding();
    let response = request.once(key, body, move |_, body, _| context.run(body, encoding)).await?;
    detach::with_location(response).await
}

struct CommandContext {
    sandbox: RequestedSandbox,
    run_id: Option<RunId>,
}

impl CommandContext {
    fn read(&self, body: &Received<CommandBody>) -> Result<ValidatedCommand, ApiError> {
        Ok(self.sandbox.touched(body.read(&self.sandbox.service.execute_rules))?)
    }

    async fn start(&self, mut request: ExecuteRequest) -> Result<Execution, ApiError> {
        request.run_id.clone_from(&self.run_id);
        self.sandbox.handle().execute(request).await.map_err(|error| self.sandbox.fault(error))
    }

    async fn run(
        self,
        body: Received<CommandBody>,
        encoding: OutputEncoding,
    ) -> Result<ReplayableResponse, ApiError> {
        let request = match self.read(&body)? {
            ValidatedCommand::Attached(request) => request,
            ValidatedCommand::Detached(command) => {
                return detach::start(&self.sandbox, command, self.run_id).await;
            }
        };
        let service = &self.sandbox.service;
        let mut memory = service.gate.output_memory.response(&self.sandbox.account);
        memory.start().await?;
        let execution = self.start(request).await?;
        // Other requests may need the body's memory while the command runs.
        drop(body);
        let output = output::collect(execution, service.max_output_bytes, encoding, memory).await;
        let output = output.map_err(|error| match error {
            CollectError::Engine(error) => self.sandbox.fault(error),
            CollectError::Refused(error) => error,
        })?;
        Ok(ReplayableResponse::new(StatusCode::OK, output))
    }
}
