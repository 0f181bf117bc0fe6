//! `POST /v1/sandboxes/{id}/execute`: runs a command and answers when it has ended, or streams what it prints.
//!
//! A client that goes away ends its command, unless it gave an idempotency key: then somebody may ask for the answer again.

use std::sync::Arc;

use api::{CommandBody, ErrorCode, ExecuteRequest, ExecutionResult, ExecutionView, RunId, SandboxId};
use axum::http::{StatusCode, header};
use axum::response::Response;
use engine::{EngineError, Execution};
use reader::CommandOrder;
use serde_json::json;

use super::executions::detach;
use super::named::Named;
use super::{read, stream};
use crate::endpoint::{Call, Content, EXECUTE, Endpoint, JsonBody, Parameter, Received, Tag};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::once::Answer;
use crate::output::{self, CollectError};
use crate::service::Service;

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
            "Runs the command with bash. Without `Accept: text/event-stream` the response comes \
             when the command has ended; a command that fails, or is killed at its timeout, is a \
             `200` too. With that header the response is a stream of Server-Sent Events: `stdout` \
             and `stderr` (one line of text each), then `done` (a `Done` object), or `error` (an \
             `ErrorObject`) if the outcome is unknown. A paused sandbox is resumed first unless \
             `autoResume` is `false`. If the client disconnects, the command is killed.\n\nWith \
             `\"detached\": true` the response is `201` at once, regardless of `Accept`. The \
             execution continues on its own: see \"Executions\".",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::IDEMPOTENCY_KEY.describe(
                "Same as for create; not for streams. A command with a key continues if its client \
                 disconnects.",
            ),
            Parameter::RUN_ID.describe("The run to which the command's events belong."),
            Parameter::flag(
                "lineEnds",
                "`true` for a stream from which a client can rebuild the output byte for byte. An \
                 event whose line did not end with a line feed has a field `end` after its data: \
                 `crlf`, or `none` for a part of a longer line and for an unterminated last line. A \
                 line feed within the data stands for a carriage return.",
            ),
        ])
        .json_body::<CommandBody>(
            16 << 20,
            Content::json::<CommandBody>().example(json!({
                "command": "echo hello",
                "cwd": "/workspace",
                "env": {"GREETING": "hi"},
                "timeoutMs": 60000,
            })),
            "Only `command` is required. Unknown fields are ignored; a repeated or `null` field \
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
    let Call { service, caller, request_id, parts, body, .. } = call;
    let named = Named::find(&service, &caller, &parts, "execute", During::Execute).await?;
    let wants_stream = reader::wants_stream(read::values(&parts.headers, header::ACCEPT));
    let body = named.body(body).await?;
    let order = Order {
        service: Arc::clone(&service),
        account: Arc::clone(&caller.account),
        id: named.id.clone(),
        run_id: named.run_id()?,
    };
    let line_ends = reader::line_ends(parts.uri.query())?;
    // The answer of a stream is not kept, and a detached command has none here.
    if wants_stream && let CommandOrder::Attached(request) = order.read(&body)? {
        let execution = order.start(request).await?;
        return Ok(stream::response(execution.streamed(), line_ends, request_id, service.stopping.clone()));
    }
    let key = named.key()?;
    let asked = body.clone();
    let work = move |_| async move { order.run(asked).await };
    detach::located(service.once.run(&caller, &named.endpoint, key, body.bytes, work).await?).await
}

struct Order {
    service: Arc<Service>,
    account: Arc<str>,
    id: SandboxId,
    run_id: Option<RunId>,
}

impl Order {
    fn read(&self, body: &Received<CommandBody>) -> Result<CommandOrder, ApiError> {
        let read = body.read(&self.service.execute_rules);
        Ok(read.inspect_err(|_| self.service.engine.sandbox(&self.account, &self.id).touch())?)
    }

    async fn start(&self, mut request: ExecuteRequest) -> Result<Execution, ApiError> {
        request.run_id.clone_from(&self.run_id);
        let engine = &self.service.engine;
        engine.sandbox(&self.account, &self.id).execute(request).await.map_err(|error| self.fault(error))
    }

    async fn run(self, body: Received<CommandBody>) -> Result<Answer, ApiError> {
        let request = match self.read(&body)? {
            CommandOrder::Attached(request) => request,
            CommandOrder::Detached(command) => {
                let Self { service, account, id, run_id } = self;
                return detach::start(&service, &account, &id, command, run_id).await;
            }
        };
        let mut memory = self.service.output_memory.response(&self.account);
        memory.start().await?;
        let execution = self.start(request).await?;
        // Other requests may need the body's memory while the command runs.
        drop(body);
        let output = output::collect(execution, self.service.max_output_bytes, memory).await;
        let output = output.map_err(|error| match error {
            CollectError::Engine(error) => self.fault(error),
            CollectError::Refused(error) => error,
        })?;
        Ok(Answer::new(StatusCode::OK, output))
    }

    fn fault(&self, error: EngineError) -> ApiError {
        of_engine(error, Some(self.id.as_str()), During::Execute)
    }
}
