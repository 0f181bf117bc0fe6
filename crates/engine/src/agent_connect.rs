//! Reaching a sandbox's agent.

use std::time::Duration;

use api::SandboxId;

use crate::error::EngineError;
use crate::link::{Agent, LinkError};
use crate::shared::Shared;

/// gVisor boots within this even on a loaded host; under a native runtime it takes milliseconds.
pub const BOOT_TIMEOUT: Duration = Duration::from_secs(15);
/// For an agent that runs already.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For small tasks of ours inside.
pub const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a link. Operation numbers grow with time, so that no link uses a number of an earlier one, also not one of a daemon
/// that died.
pub async fn connect_agent(shared: &Shared, id: &SandboxId, timeout: Duration) -> Result<Agent, EngineError> {
    let first_op = shared.clock.now().0 << 20;
    let connecting = tokio::time::timeout(timeout, shared.driver.connect(id));
    let stream = connecting.await.map_err(|_| LinkError::Silent(timeout))??;
    let kept = shared.detached.running(id);
    Ok(Agent::greet(stream, first_op, &kept, timeout).await?)
}
