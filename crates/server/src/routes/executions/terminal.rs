//! `POST /v1/sandboxes/{id}/terminals`: opens a terminal, once for each idempotency key.

use std::sync::Arc;

use api::{RunId, SandboxId, TerminalBody};
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;

use super::detach;
use crate::error::{ApiError, During};
use crate::keyring::Caller;
use crate::routes::named::Named;
use crate::service::Service;

/// A command of at most 64 KiB, an environment, and room.
const BODY_MAX: usize = 1 << 20;

/// Open a terminal
///
/// Starts a shell, or a command, on a terminal of its own, and answers at once. It goes on whether somebody is attached or not; `GET
/// …/executions/{execution}/attach` attaches to it. It keeps its sandbox awake while somebody is attached.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/terminals", operation_id = "openTerminal", tag = "Executions",
    params(
        ("id" = SandboxId, Path, description = "Id of the sandbox."),
        ("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 255, pattern = r"^[\x21-\x7e]+$",
            description = "As with create.", example = "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ("X-Run-Id" = inline(Option<RunId>), Header, nullable = false, description = "The run that the terminal's events belong to.")
    ),
    request_body(content = TerminalBody, description = "Nothing has to be there. Unknown fields are ignored; one that is given twice, or is `null`, is an error.",
        example = json!({"cols": 120, "rows": 40, "cwd": "/workspace"})),
    responses(
        (status = 201, description = "It runs.", body = api::ExecutionView,
            headers(("Location" = String, description = "Path of the execution."),
                ("Idempotency-Replayed" = String, description = "`true` on an answer that was given before under the same key."))),
        (status = 400, description = "Malformed or wrongly typed: `INVALID_REQUEST`. A value out of its range: `INVALID_CONFIG`. More than 65,536 bytes of command: `COMMAND_TOO_LONG`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`."),
        (status = 409, description = "It is not `running`, and not to be resumed: `INVALID_STATE`."),
        (status = 413, description = "The body is larger than 1 MiB: `INVALID_REQUEST`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn open(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let named = Named::find(&service, &caller, &parts, "terminals", During::Execute).await?;
    let (key, run_id) = (named.key()?, named.run_id()?);
    let body = named.body(body, BODY_MAX).await?;
    let (id, endpoint) = (named.id, named.endpoint);
    let (shared, account, asked) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |_| async move {
        let command = reader::terminal(&asked, &shared.execute_rules)
            .inspect_err(|_| shared.engine.sandbox(&account, &id).touch())?;
        detach::start(&shared, &account, &id, command, run_id).await
    };
    detach::located(service.once.run(&caller, &endpoint, key, body, work).await?).await
}
