//! `POST /v1/sandboxes/{id}/execute`: runs a command and answers when it has ended, or streams what it prints.
//!
//! A client that goes away ends its command, unless it gave an idempotency key: then somebody may ask for the answer again.

use std::sync::Arc;

use api::{ExecuteRequest, ExecutionResult, ExecutionView, RunId, SandboxId};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use engine::{EngineError, Execution};
use reader::Ask;
use utoipa::openapi::{OneOfBuilder, Ref, RefOr, Schema};

use super::executions::detach;
use super::named::Named;
use super::{read, stream};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::layers::RequestId;
use crate::once::Answer;
use crate::output::{self, CollectError};
use crate::service::Service;

/// A command of at most 64 KiB and the text for its stdin.
const BODY_MAX: usize = 16 << 20;

/// Run a command
///
/// With bash. Without `Accept: text/event-stream` the answer comes when the command has ended: also one that failed or was killed
/// when its time was over is answered with `200`. With it the answer is a stream of Server-Sent Events: `stdout` and `stderr` (the data is one
/// line, as text), then `done` (the data is a JSON object as in the schema `Done`), or `error` (an `ErrorObject`) where the end is not
/// known. A paused sandbox is resumed first, unless `autoResume` is `false`. A client that goes away ends its command.
///
/// With `"detached": true` the answer is `201` at once, whatever `Accept` says, and shows the execution, which goes on by itself: see
/// "Executions".
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/execute", operation_id = "execute", tag = "Commands",
    params(
        ("id" = SandboxId, Path, description = "Id of the sandbox."),
        ("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 255, pattern = r"^[\x21-\x7e]+$",
            description = "As with create; for answers that are not streams. A command under a key is not ended when its client goes away.",
            example = "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ("X-Run-Id" = inline(Option<RunId>), Header, nullable = false, description = "The run that the command's events belong to."),
        ("lineEnds" = Option<bool>, Query, nullable = false, description = "`true` for a stream from which output can be put together byte for byte: an event whose line did not end with a line feed has the field `end` behind its data, which is `none` for a piece that goes on in the next event and for a last line without an end, and `crlf`. Each line feed within the data was a carriage return.")
    ),
    request_body(content = Body, description = "Only `command` has to be there. Unknown fields are ignored; one that is given twice, or is `null`, is an error.",
        example = json!({"command": "echo hello", "cwd": "/workspace", "env": {"GREETING": "hi"}, "timeoutMs": 60000})),
    responses(
        (status = 200, description = "How the command ended, or the stream of its events.",
            headers(("Idempotency-Replayed" = String, description = "`true` on an answer that was given before under the same key.")),
            content(
                (ExecutionResult = "application/json", example = json!({"stdout": "hello\n", "stderr": "", "exitCode": 0, "durationMs": 3, "signal": null})),
                (String = "text/event-stream", example = "event: stdout\ndata: hello\n\nevent: done\ndata: {\"exitCode\":0,\"durationMs\":3,\"signal\":null}\n\n")
            )),
        (status = 201, description = "The command is detached and runs.", body = ExecutionView,
            headers(("Location" = String, description = "Path of the execution."),
                ("Idempotency-Replayed" = String, description = "`true` on an answer that was given before under the same key."))),
        (status = 400, description = "Malformed or wrongly typed: `INVALID_REQUEST`. A value out of its range: `INVALID_CONFIG`. More than 65,536 bytes of command: `COMMAND_TOO_LONG`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`."),
        (status = 408, description = "The command's time was over before it could start: `EXECUTION_TIMEOUT`. The body came too slowly: `INVALID_REQUEST`."),
        (status = 409, description = "It is not `running`, and not to be resumed: `INVALID_STATE`."),
        (status = 413, description = "The body is larger than 16 MiB: `INVALID_REQUEST`."),
        (status = 502, description = "The sandbox failed while the command was executed: `EXECUTION_ERROR`.")
    )
)]
pub async fn execute(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let named = Named::find(&service, &caller, &parts, "execute", During::Execute).await?;
    let wants_stream = reader::wants_stream(read::values(&parts.headers, header::ACCEPT));
    let body = named.body(body, BODY_MAX).await?;
    let order = Order {
        service: Arc::clone(&service),
        account: Arc::clone(&caller.account),
        id: named.id.clone(),
        run_id: named.run_id()?,
    };
    let line_ends = reader::line_ends(parts.uri.query())?;
    // The answer of a stream is not kept, and a detached command has none here.
    if wants_stream && let Ask::Attached(request) = order.read(&body)? {
        let execution = order.start(request).await?;
        return Ok(stream::response(execution.streamed(), line_ends, request_id, service.stopping.clone()));
    }
    let key = named.key()?;
    let asked = body.clone();
    let work = move |_| async move { order.run(asked).await };
    detach::located(service.once.run(&caller, &named.endpoint, key, body, work).await?).await
}

struct Order {
    service: Arc<Service>,
    account: Arc<str>,
    id: SandboxId,
    run_id: Option<RunId>,
}

impl Order {
    fn read(&self, body: &Bytes) -> Result<Ask, ApiError> {
        let read = reader::ask(body, &self.service.execute_rules);
        Ok(read.inspect_err(|_| self.service.engine.sandbox(&self.account, &self.id).touch())?)
    }

    async fn start(&self, mut request: ExecuteRequest) -> Result<Execution, ApiError> {
        request.run_id.clone_from(&self.run_id);
        let engine = &self.service.engine;
        engine.sandbox(&self.account, &self.id).execute(request).await.map_err(|error| self.fault(error))
    }

    async fn run(self, body: Bytes) -> Result<Answer, ApiError> {
        let request = match self.read(&body)? {
            Ask::Attached(request) => request,
            Ask::Detached(command) => {
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

/// What the body may be, as its schema.
struct Body;

impl utoipa::PartialSchema for Body {
    fn schema() -> RefOr<Schema> {
        let one = |name: &str| Ref::from_schema_name(name);
        OneOfBuilder::new().item(one("ExecuteBody")).item(one("DetachedBody")).into()
    }
}

impl utoipa::ToSchema for Body {}
