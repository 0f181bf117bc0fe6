//! `create_sandbox`.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::{Isolation, IsolationChoice};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{self, Effect};
use super::{Call, json_result, parse, within};
use crate::failure::Failure;
use crate::session::MARK;

const DEFAULT_LIFETIME_S: u64 = 3600;
const LONGEST_LIFETIME_S: u64 = 86_400;

pub fn tool() -> Tool {
    schema::tool(
        "create_sandbox",
        "Create a sandbox",
        "Create an isolated Linux sandbox and return its id, for the sandboxId of other tools. It is not terminated with this session: \
         terminate it with terminate_sandbox, or it ends after timeoutSeconds of running time. An idle sandbox is paused, keeps its files, and resumes with the next \
         call. Not needed for work in a single default sandbox: the other tools create one without sandboxId.",
        Effect::Adds,
        schema::input(
            json!({
                "image": {"type": "string", "minLength": 1, "maxLength": 512, "description": "Image, such as ubuntu:24.04, python:3.12 or node:22; or the name or templateId of a template; or a snapshotId. Default: the image of this server."},
                "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$", "maxLength": 63, "description": "A name that other tools accept as sandboxId. No other sandbox that is not terminated may have it."},
                "timeoutSeconds": schema::integer(1, LONGEST_LIFETIME_S, "Running time after which the sandbox is terminated. Default: 3600."),
                "cpu": schema::integer(1, 64, "Number of vCPUs."),
                "memoryMb": schema::integer(2048, 16_384, "Memory in MB. Default: 4096."),
                "diskMb": schema::integer(5120, 51_200, "Disk in MB. Default: 10240."),
                "env": schema::env("Environment variables of every command."),
                "workdir": schema::path("Working directory of commands, created if it does not exist."),
                "allowedDomains": schema::domains("The only domains that the sandbox can reach, such as example.com or *.example.org. Empty: no network. Default: all, unless this server restricts them."),
                "cold": schema::boolean("If image has stored processes: start without them. Default: false."),
                "isolation": {"type": "string", "enum": ["auto", "container", "gvisor"], "description": "What separates the sandbox from the host. gvisor is stronger and slower; the service may lack it or require it. Default: auto, the choice of the service."}
            }),
            &[],
        ),
        schema::output(
            json!({
                "sandboxId": schema::text("The id of the sandbox."),
                "name": schema::text("Its name, if it has one."),
                "image": schema::text("Its image."),
                "workdir": schema::text("The working directory of its commands."),
                "isolation": schema::text("What separates it from the host: container or gvisor."),
                "timeoutSeconds": {"type": "integer", "description": "Running time after which it is terminated."}
            }),
            &["sandboxId", "image", "timeoutSeconds"],
        ),
    )
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    image: Option<String>,
    name: Option<String>,
    timeout_seconds: Option<u64>,
    cpu: Option<u32>,
    memory_mb: Option<u32>,
    disk_mb: Option<u32>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    workdir: Option<String>,
    allowed_domains: Option<Vec<String>>,
    #[serde(default)]
    cold: bool,
    isolation: Option<IsolationChoice>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Created {
    sandbox_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    workdir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: Option<Isolation>,
    timeout_seconds: u64,
}

pub async fn call(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let arguments: Arguments = parse(arguments)?;
    let lifetime = arguments.timeout_seconds.unwrap_or(DEFAULT_LIFETIME_S);
    let lifetime = within("timeoutSeconds", lifetime, 1, LONGEST_LIFETIME_S)?;
    let mut create =
        call.settings.create(&call.client, arguments.image.as_deref(), arguments.allowed_domains)?;
    create = create.timeout(Duration::from_secs(lifetime)).metadata(MARK, "created");
    if let Some(name) = arguments.name {
        create = create.name(name);
    }
    if let Some(cpu) = arguments.cpu {
        create = create.cpu(cpu);
    }
    if let Some(memory_mb) = arguments.memory_mb {
        create = create.memory_mb(memory_mb);
    }
    if let Some(disk_mb) = arguments.disk_mb {
        create = create.disk_mb(disk_mb);
    }
    for (name, value) in arguments.env {
        create = create.env(name, value);
    }
    if let Some(workdir) = arguments.workdir {
        create = create.workdir(workdir);
    }
    if let Some(isolation) = arguments.isolation {
        create = create.isolation(isolation);
    }
    if arguments.cold {
        create = create.cold(true);
    }
    let sandbox = create.await?;
    if call.cancelled.is_cancelled() {
        // Nobody gets the id.
        sandbox.terminate().await?;
        return Err(Failure::cancelled());
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
    json_result(None, &created)
}
