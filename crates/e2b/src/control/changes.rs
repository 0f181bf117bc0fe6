//! Changes of the life of a sandbox.

use api::{SandboxId, SandboxState};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use engine::{EngineError, Processes, SandboxError, TimeoutChange};
use rules::OperationRefusal;

use super::body::{self, Timeout};
use super::{Call, limits, view};
use crate::error::E2bError;

pub async fn kill(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    call.find(id)?;
    call.sandbox(id).terminate("request").await.map_err(|error| call.failed(id, error))?;
    Ok(view::empty(StatusCode::NO_CONTENT))
}

/// A paused sandbox is a conflict, which their clients know.
pub async fn pause(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    call.find(id)?;
    let body: body::Pause = call.read(body).await?;
    match call.sandbox(id).pause_with(processes(body.memory)).await {
        Ok(_) => Ok(view::empty(StatusCode::NO_CONTENT)),
        Err(EngineError::Sandbox(SandboxError::Refused(OperationRefusal::InvalidState {
            state: SandboxState::Paused,
            ..
        }))) => {
            let message = format!("sandbox '{}' is paused already", id.compact());
            Err(E2bError::new(StatusCode::CONFLICT, message))
        }
        Err(error) => Err(call.failed(id, error)),
    }
}

/// Resumes a paused sandbox, which then has the given time; a running one gets more time, never less.
pub async fn connect(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    let (_, own) = call.find_with_options(id)?;
    let body: Timeout = call.read(body).await?;
    let timeout_ms = body.timeout.map(limits::timeout_ms).transpose()?;
    let is_resumed = wake(call, id, processes(body.memory)).await?;
    let change = match (timeout_ms, is_resumed) {
        (Some(ms), true) => TimeoutChange::Set(ms),
        (Some(ms), false) => TimeoutChange::Extend(ms),
        (None, _) => TimeoutChange::Extend(own.timeout_ms),
    };
    call.sandbox(id).change_timeout(change).await.map_err(|error| call.failed(id, error))?;
    let status = if is_resumed { StatusCode::CREATED } else { StatusCode::OK };
    call.find(id)?;
    Ok(view::json(status, &view::sandbox(&call.api, &call.caller, id, &own)))
}

/// The call of old clients: a running sandbox is a conflict.
pub async fn resume(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    let (_, own) = call.find_with_options(id)?;
    let timeout_ms = given_timeout(call, body).await?.unwrap_or(own.timeout_ms);
    if !wake(call, id, Processes::Kept).await? {
        let message = format!("sandbox '{}' is running already", id.compact());
        return Err(E2bError::new(StatusCode::CONFLICT, message));
    }
    let change = TimeoutChange::Set(timeout_ms);
    call.sandbox(id).change_timeout(change).await.map_err(|error| call.failed(id, error))?;
    call.find(id)?;
    Ok(view::json(StatusCode::CREATED, &view::sandbox(&call.api, &call.caller, id, &own)))
}

/// From the field `memory`.
fn processes(memory: Option<bool>) -> Processes {
    if memory == Some(false) { Processes::Ended } else { Processes::Kept }
}

async fn given_timeout(call: &Call, body: Body) -> Result<Option<u64>, E2bError> {
    let body: Timeout = call.read(body).await?;
    body.timeout.map(limits::timeout_ms).transpose()
}

/// Whether the sandbox was paused. It runs when this returns.
async fn wake(call: &Call, id: &SandboxId, processes: Processes) -> Result<bool, E2bError> {
    match call.sandbox(id).resume_with(processes).await {
        Ok(_) => Ok(true),
        Err(EngineError::Sandbox(SandboxError::Refused(OperationRefusal::InvalidState {
            state: SandboxState::Running,
            ..
        }))) => Ok(false),
        Err(error) => Err(call.failed(id, error)),
    }
}

/// The timeout counts from now, and may be shorter than before.
pub async fn timeout(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    call.find(id)?;
    let timeout = given_timeout(call, body).await?;
    let ms = timeout.ok_or_else(|| E2bError::invalid("timeout is missing"))?;
    let change = TimeoutChange::Set(ms);
    call.sandbox(id).change_timeout(change).await.map_err(|error| call.failed(id, error))?;
    Ok(view::empty(StatusCode::NO_CONTENT))
}

/// The call of old clients that only extends the time.
pub async fn refresh(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    let (_, own) = call.find_with_options(id)?;
    let ms = given_timeout(call, body).await?.unwrap_or(own.timeout_ms);
    let change = TimeoutChange::Extend(ms);
    call.sandbox(id).change_timeout(change).await.map_err(|error| call.failed(id, error))?;
    Ok(view::empty(StatusCode::NO_CONTENT))
}
