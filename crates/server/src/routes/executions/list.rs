//! `GET /v1/sandboxes/{id}/executions`: a page of a sandbox's executions.

use std::sync::Arc;

use api::{ExecutionList, Pagination};
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::{fault, shown};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::read::sandbox_id;
use crate::routes::view;
use crate::service::Service;

/// List executions
///
/// Detached commands and terminals of a sandbox, newest first: those that run, and the last that ended.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/executions", operation_id = "listExecutions", tag = "Executions",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("limit" = Option<u32>, Query, description = "Items a page; 20 where it is left out.", nullable = false, minimum = 1, maximum = 100),
        ("offset" = Option<u64>, Query, description = "Items to skip; none where it is left out.", nullable = false, minimum = 0, maximum = 9_007_199_254_740_991u64)
    ),
    responses(
        (status = 200, description = "A page.", body = ExecutionList),
        (status = 400, description = "A parameter has a value that is not allowed: `INVALID_REQUEST`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`.")
    )
)]
pub async fn list(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = sandbox_id(&uri)?;
    let all =
        service.engine.sandbox(&caller.account, &id).executions().await.map_err(|error| fault(error, &id))?;
    let (offset, limit) = reader::page(uri.query())?;
    let total = all.len() as u64;
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let page = all.into_iter().skip(skipped).take(limit as usize);
    let data = page.map(|status| shown::view(&id, status)).collect();
    view::ok(&ExecutionList { data, pagination: Pagination::new(total, limit, offset) })
}
