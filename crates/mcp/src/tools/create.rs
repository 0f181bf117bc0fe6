//! `create_sandbox`.

use std::collections::BTreeMap;
use std::time::Duration;

use base::SetSome;
use sandboxd_client::{Create, Isolation, IsolationChoice};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reply::ToolReply;
use super::schema::{self, Effect};
use super::shared::Domains;
use super::{Declared, ToolCall, within};
use crate::failure::ToolFailure;
use crate::session::MARK;

const DEFAULT_LIFETIME_S: u64 = 3600;
const LONGEST_LIFETIME_S: u64 = 86_400;

/// Create an isolated Linux sandbox and return its id, for the sandboxId of other tools. It is not terminated with this session: end it
/// with manage_sandboxes, or it ends after timeoutSeconds of running time. An idle sandbox is paused, keeps its files, and resumes with
/// the next call. Not needed for work in a single default sandbox: the other tools create one without sandboxId.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSandbox {
    /// Image, such as ubuntu:24.04, python:3.12 or node:22; or the name or templateId of a template; or a snapshotId. Default: the
    /// image of this server.
    #[schemars(length(min = 1, max = 512))]
    image: Option<String>,
    /// A name that other tools accept as sandboxId. No other sandbox that is not terminated may have it.
    #[schemars(length(max = 63), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"))]
    name: Option<String>,
    /// Running time after which the sandbox is terminated. Default: 3600.
    #[schemars(range(min = 1, max = LONGEST_LIFETIME_S))]
    timeout_seconds: Option<u64>,
    /// Number of vCPUs.
    #[schemars(range(min = 1, max = 64))]
    cpu: Option<u32>,
    /// Memory in MB. Default: 4096.
    #[schemars(range(min = 2048, max = 16_384))]
    memory_mb: Option<u32>,
    /// Disk in MB. Default: 10240.
    #[schemars(range(min = 5120, max = 51_200))]
    disk_mb: Option<u32>,
    /// Environment variables of every command.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 100))]
    env: BTreeMap<String, String>,
    /// Working directory of commands, created if it does not exist.
    #[schemars(length(min = 1, max = 4096))]
    workdir: Option<String>,
    /// The only domains that the sandbox can reach, such as example.com or *.example.org. Empty: no network. Default: all, unless this
    /// server restricts them.
    allowed_domains: Option<Domains>,
    /// If image has stored processes: start without them. Default: false.
    #[serde(default)]
    cold: bool,
    /// What separates the sandbox from the host. gvisor is stronger and slower; the service may lack it or require it. Default: auto,
    /// the choice of the service.
    #[serde(default)]
    #[schemars(schema_with = "schema::isolation_choice")]
    isolation: Option<IsolationChoice>,
}

impl Declared for CreateSandbox {
    const NAME: &'static str = "create_sandbox";
    const TITLE: &'static str = "Create a sandbox";
    const EFFECT: Effect = Effect::Adds;
    type Output = Created;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<Created>, ToolFailure> {
        create(call, self).await
    }
}

/// A new sandbox.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    /// The id of the sandbox.
    sandbox_id: String,
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its image.
    image: String,
    /// The working directory of its commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    workdir: Option<String>,
    /// What separates it from the host: container or gvisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    isolation: Option<Isolation>,
    /// Running time after which it is terminated.
    timeout_seconds: u64,
}

async fn create(call: &ToolCall, arguments: CreateSandbox) -> Result<ToolReply<Created>, ToolFailure> {
    let lifetime = arguments.timeout_seconds.unwrap_or(DEFAULT_LIFETIME_S);
    let lifetime = within("timeoutSeconds", lifetime, 1, LONGEST_LIFETIME_S)?;
    let domains = arguments.allowed_domains.map(|domains| domains.0);
    let mut create = call.settings.create(&call.client, arguments.image.as_deref(), domains)?;
    create = create.timeout(Duration::from_secs(lifetime)).metadata(MARK, "created");
    create = create
        .set_some(arguments.name, Create::name)
        .set_some(arguments.cpu, Create::cpu)
        .set_some(arguments.memory_mb, Create::memory_mb)
        .set_some(arguments.disk_mb, Create::disk_mb);
    for (name, value) in arguments.env {
        create = create.env(name, value);
    }
    create =
        create.set_some(arguments.workdir, Create::workdir).set_some(arguments.isolation, Create::isolation);
    if arguments.cold {
        create = create.cold(true);
    }
    let sandbox = create.await?;
    if call.cancelled.is_cancelled() {
        // Nobody gets the id.
        sandbox.terminate().await?;
        return Err(ToolFailure::cancelled());
    }
    let known = sandbox.known();
    let created = Created {
        sandbox_id: sandbox.id().to_string(),
        name: known.as_ref().and_then(|view| view.name.clone()),
        image: known.as_ref().map_or_else(|| call.settings.image.clone(), |view| view.image.clone()),
        isolation: known.as_ref().map(|view| view.isolation),
        workdir: known.map(|view| view.workdir),
        timeout_seconds: lifetime,
    };
    Ok(ToolReply::json(None, created))
}
