//! Ends the processes of a sandbox because somebody requests it; its disk stays.

use std::time::Duration;

use tokio::time::Instant;

use super::loss::{has_lost_processes, processes_lost};
use super::{Actor, LinkedProcesses};
use crate::error::EngineError;
use crate::host::guest;

/// How long the detached executions may take to record their end.
const EXECUTIONS_TIMEOUT: Duration = Duration::from_secs(2);
const EXECUTIONS_INTERVAL: Duration = Duration::from_millis(2);

/// Ends all processes, and waits until their executions know.
pub(super) async fn end_processes(actor: &mut Actor) -> Result<(), EngineError> {
    if let Err(error) = actor.context.host.stop(&guest(&actor.record)).await {
        if has_lost_processes(actor).await {
            processes_lost(actor).await?;
        }
        return Err(error);
    }
    actor.processes = LinkedProcesses::Ended;
    actor.publish_agent();
    wait_for_executions(actor).await;
    Ok(())
}

/// Waits until all executions have recorded their end. False if they do not in time.
pub(super) async fn wait_for_executions(actor: &Actor) -> bool {
    let begin = Instant::now();
    while !actor.executions.running_ops().is_empty() {
        if begin.elapsed() > EXECUTIONS_TIMEOUT {
            return false;
        }
        tokio::time::sleep(EXECUTIONS_INTERVAL).await;
    }
    true
}
