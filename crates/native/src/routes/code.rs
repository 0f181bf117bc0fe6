//! `POST /v1/sandboxes/{id}/code` and the contexts below it: the code interpreter of a sandbox.

use std::time::Duration;

use admission::error::ApiError;
use api::ErrorCode;
use rules::AutoResume;

use super::requested_sandbox::RequestedSandbox;
use crate::endpoint::Endpoint;
use crate::interpreter::{self, Reply};

/// The error must not wait long for its better explanation.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

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
    let probe = async {
        let admission = sandbox.handle().admit_execution(AutoResume::Forbidden).await.ok()?;
        Some(interpreter::is_disk_full(admission).await)
    };
    match tokio::time::timeout(PROBE_TIMEOUT, probe).await {
        Ok(Some(true)) => service::error::interpreter_disk_full(),
        _ => error,
    }
}
