//! `POST /v1/sandboxes/{id}/code` and the contexts below it: the code interpreter of a sandbox.

use admission::error::ApiError;
use api::ErrorCode;
use rules::AutoResume;

use super::requested_sandbox::RequestedSandbox;
use crate::endpoint::Endpoint;
use crate::interpreter::{self, Reply};

mod contexts;
mod run;
mod running;
mod stream;

pub fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![run::endpoint()];
    endpoints.extend(contexts::endpoints());
    endpoints
}

/// The error of a response of the program inside that is no success. A failure without a reason may be that of a full disk.
async fn refusal(sandbox: &RequestedSandbox, reply: Reply, context: Option<&str>) -> ApiError {
    let error = reply.refusal(context).await;
    if error.code != ErrorCode::ExecutionError {
        return error;
    }
    let Ok(admission) = sandbox.handle().admit_execution(AutoResume::Forbidden).await else { return error };
    if interpreter::is_disk_full(admission).await { service::error::interpreter_disk_full() } else { error }
}
