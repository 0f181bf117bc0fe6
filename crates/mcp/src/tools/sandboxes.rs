//! `manage_sandboxes`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fork::{self, ForkSandbox, Forked};
use super::list::{self, ListSandboxes, SandboxesListed};
use super::reply::ToolReply;
use super::schema::Effect;
use super::terminate::{self, TerminateSandbox, Terminated};
use super::{Declared, ToolCall};
use crate::failure::ToolFailure;

/// List the sandboxes of the account, fork one, or terminate one. Without sandboxId, fork and terminate use the sandbox of this session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ManageSandboxes {
    /// List the sandboxes in one state, newest first. A paused sandbox resumes when a tool uses it; a terminated one is gone. If
    /// nextOffset is in the result, there are more: call again with it as offset.
    List(ListSandboxes),
    /// Create copies of a sandbox, with its files and its configuration, and return their ids for the sandboxId of other tools: for
    /// example to try several changes from the same state. The sandbox runs on. Its exposed ports are not copied. Forks of the sandbox
    /// of this session are terminated with the session; other forks have the timeoutSeconds of their sandbox. Terminate forks that are
    /// not needed.
    Fork(ForkSandbox),
    /// Terminate a sandbox: end its processes and delete its files. This cannot be undone. Without sandboxId it terminates the sandbox
    /// of this session; the next call without sandboxId creates a new one.
    Terminate(TerminateSandbox),
}

/// The result of an action.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SandboxesManaged {
    Listed(SandboxesListed),
    Forked(Forked),
    Terminated(Terminated),
}

impl Declared for ManageSandboxes {
    const NAME: &'static str = "manage_sandboxes";
    const TITLE: &'static str = "Manage sandboxes";
    const EFFECT: Effect = Effect::Runs;
    type Output = SandboxesManaged;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<SandboxesManaged>, ToolFailure> {
        Ok(match self {
            Self::List(arguments) => list::list(call, arguments).await?.map(SandboxesManaged::Listed),
            Self::Fork(arguments) => fork::fork(call, arguments).await?.map(SandboxesManaged::Forked),
            Self::Terminate(arguments) => {
                terminate::terminate(call, arguments).await?.map(SandboxesManaged::Terminated)
            }
        })
    }
}
