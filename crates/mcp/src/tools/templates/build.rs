//! The action `build` of `manage_templates`.
//!
//! ```text
//! build ──> follow ──over, or waitSeconds have passed──> result with the state and the tail of the log
//!              └──cancelled, or the call is dropped──> the build is cancelled
//! ```

use std::collections::BTreeMap;

use base::SetSome;
use sandboxd_client::{BuildTemplate, Client, IsolationChoice, TemplateId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::build_log::{self, Built, LONGEST_WAIT_S, Log, Stopped};
use super::{LONGEST_NAME, NAME_PATTERN};
use crate::failure::ToolFailure;
use crate::session::MARK;
use crate::tools::cancel_on_drop::CancelOnDrop;
use crate::tools::reply::ToolReply;
use crate::tools::shared::Domains;
use crate::tools::{ToolCall, schema};

const DEFAULT_WAIT_S: u64 = 60;
const LONGEST_DOCKERFILE: usize = 256 << 10;
const LONGEST_COMMAND: usize = 65_536;

/// What to build.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BuildRequest {
    /// The name, such as web.
    #[schemars(length(max = LONGEST_NAME), regex(pattern = NAME_PATTERN))]
    name: String,
    /// The text of the Dockerfile, with one FROM: an image, or the name of another template.
    #[schemars(length(min = 1, max = LONGEST_DOCKERFILE))]
    dockerfile: String,
    /// Values for ARG. They are stored: not for secrets.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 100))]
    build_args: BTreeMap<String, String>,
    /// A command that runs in every sandbox from the template, such as a server. CMD and ENTRYPOINT do not run.
    #[schemars(length(min = 1, max = LONGEST_COMMAND))]
    start_command: Option<String>,
    /// A check that exits with 0 when startCommand is ready, such as: `curl -sf http://127.0.0.1:8080`
    #[schemars(length(min = 1, max = LONGEST_COMMAND))]
    ready_command: Option<String>,
    /// The only domains that RUN can reach. Empty: no network. Default: all, unless this server restricts them.
    allowed_domains: Option<Domains>,
    /// Isolation of the steps; sandboxes from the template have at least this. Default: auto, the choice of the service.
    #[serde(default)]
    #[schemars(schema_with = "schema::isolation_choice")]
    isolation: Option<IsolationChoice>,
    /// Run all steps again, for example to get newer packages. Default: false.
    #[serde(default)]
    no_cache: bool,
    /// How long to wait for the end of the build. Default: 60.
    #[schemars(range(min = 1, max = LONGEST_WAIT_S))]
    wait_seconds: Option<u64>,
}

/// Builds a template, and waits for the end of its build.
pub async fn build(call: &ToolCall, arguments: BuildRequest) -> Result<ToolReply<Built>, ToolFailure> {
    let wait = build_log::wait(arguments.wait_seconds, DEFAULT_WAIT_S)?;
    let accepted = request(call, arguments)?.await?;
    let (client, id) = (call.client.clone(), accepted.id.clone());
    let cancel = CancelOnDrop::new(move || cancel(client.clone(), id.clone()));
    let mut log = Log::default();
    let stopped = build_log::follow(call, &accepted.id, wait, &mut log).await;
    if let Stopped::Cancelled = stopped {
        cancel.cancel().await;
        return Err(ToolFailure::cancelled());
    }
    cancel.disarm();
    build_log::conclude(call, &accepted.id, log, stopped).await
}

fn request(call: &ToolCall, arguments: BuildRequest) -> Result<BuildTemplate, ToolFailure> {
    let mut build = call.client.build_template(arguments.name).dockerfile(arguments.dockerfile);
    build = build.no_cache(arguments.no_cache).metadata(MARK, "created");
    for (name, value) in arguments.build_args {
        build = build.build_arg(name, value);
    }
    build = build
        .set_some(arguments.start_command, BuildTemplate::start_command)
        .set_some(arguments.ready_command, BuildTemplate::ready_command)
        .set_some(arguments.isolation, BuildTemplate::isolation);
    let domains = arguments.allowed_domains.map(|domains| domains.0);
    build = build.set_some(call.settings.domains(domains)?, BuildTemplate::only_domains);
    Ok(build)
}

/// Without the result of the call nobody gets the id of the template.
async fn cancel(client: Client, id: TemplateId) {
    if let Err(error) = client.cancel_template(id.as_str()).await {
        tracing::debug!(%error, "cannot cancel a build; its time limit ends it");
    }
}
