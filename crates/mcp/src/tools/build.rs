//! `build_template`.
//!
//! ```text
//! build_template ──> follow ──over, or waitSeconds have passed──> result with the state and the tail of the log
//!                       └──cancelled, or the call is dropped──> the build is cancelled
//! ```

use std::collections::BTreeMap;

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::{BuildTemplate, Client, IsolationChoice, TemplateId};
use serde::Deserialize;
use serde_json::json;

use super::build_log::{self, LONGEST_WAIT_S, Log, Stopped};
use super::schema::{self, Effect};
use super::{Call, parse, templates};
use crate::failure::Failure;
use crate::session::MARK;

const DEFAULT_WAIT_S: u64 = 60;
const LONGEST_DOCKERFILE: usize = 256 << 10;
const LONGEST_COMMAND: usize = 65_536;

pub fn tool() -> Tool {
    schema::tool(
        "build_template",
        "Build a template",
        "Build an image from a Dockerfile, so that new sandboxes begin with programs and files in place: pass its name as image to create_sandbox when its state is ready. \
         Waits for the build up to waitSeconds; a longer build goes on, and read_build_log follows it. Building a name again makes a new version. Finished steps are cached. \
         There are no local files: COPY only works with here-documents, so create files with them or with RUN, for example by git clone.",
        Effect::Adds,
        schema::input(
            json!({
                "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._/-]*$", "maxLength": templates::LONGEST_NAME, "description": "The name, such as web."},
                "dockerfile": {"type": "string", "minLength": 1, "maxLength": LONGEST_DOCKERFILE, "description": "The text of the Dockerfile, with one FROM: an image, or the name of another template."},
                "buildArgs": schema::env("Values for ARG. They are stored: not for secrets."),
                "startCommand": {"type": "string", "minLength": 1, "maxLength": LONGEST_COMMAND, "description": "A command that runs in every sandbox from the template, such as a server. CMD and ENTRYPOINT do not run."},
                "readyCommand": {"type": "string", "minLength": 1, "maxLength": LONGEST_COMMAND, "description": "A check that exits with 0 when startCommand is ready, such as: curl -sf http://127.0.0.1:8080"},
                "allowedDomains": schema::domains("The only domains that RUN can reach. Empty: no network. Default: all, unless this server restricts them."),
                "isolation": {"type": "string", "enum": ["auto", "container", "gvisor"], "description": "Isolation of the steps; sandboxes from the template have at least this. Default: auto, the choice of the service."},
                "noCache": schema::boolean("Run all steps again, for example to get newer packages. Default: false."),
                "waitSeconds": schema::integer(1, LONGEST_WAIT_S, "How long to wait for the end of the build. Default: 60.")
            }),
            &["name", "dockerfile"],
        ),
        build_log::output(),
    )
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    name: String,
    dockerfile: String,
    #[serde(default)]
    build_args: BTreeMap<String, String>,
    start_command: Option<String>,
    ready_command: Option<String>,
    allowed_domains: Option<Vec<String>>,
    isolation: Option<IsolationChoice>,
    #[serde(default)]
    no_cache: bool,
    wait_seconds: Option<u64>,
}

pub async fn call(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let arguments: Arguments = parse(arguments)?;
    let wait = build_log::wait(arguments.wait_seconds, DEFAULT_WAIT_S)?;
    let accepted = request(call, arguments)?.await?;
    let cancel = CancelOnDrop(Some((call.client.clone(), accepted.id.clone())));
    let mut log = Log::default();
    let stopped = build_log::follow(call, &accepted.id, wait, &mut log).await;
    if let Stopped::Cancelled = stopped {
        cancel.cancel().await;
        return Err(Failure::cancelled());
    }
    cancel.disarm();
    build_log::conclude(call, &accepted.id, log, stopped).await
}

fn request(call: &Call, arguments: Arguments) -> Result<BuildTemplate, Failure> {
    let mut build = call.client.build_template(arguments.name).dockerfile(arguments.dockerfile);
    build = build.no_cache(arguments.no_cache).metadata(MARK, "created");
    for (name, value) in arguments.build_args {
        build = build.build_arg(name, value);
    }
    if let Some(command) = arguments.start_command {
        build = build.start_command(command);
    }
    if let Some(command) = arguments.ready_command {
        build = build.ready_command(command);
    }
    if let Some(isolation) = arguments.isolation {
        build = build.isolation(isolation);
    }
    if let Some(domains) = call.settings.domains(arguments.allowed_domains)? {
        build = build.only_domains(domains);
    }
    Ok(build)
}

/// Cancels a build whose call was dropped: nobody gets the id of its template.
struct CancelOnDrop(Option<(Client, TemplateId)>);

impl CancelOnDrop {
    async fn cancel(mut self) {
        if let Some((client, id)) = &self.0 {
            cancel(client, id).await;
        }
        // Not earlier: a drop during the request has to repeat it.
        self.0 = None;
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some((client, id)) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { cancel(&client, &id).await });
        }
    }
}

async fn cancel(client: &Client, id: &TemplateId) {
    if let Err(error) = client.cancel_template(id.as_str()).await {
        tracing::debug!(%error, "cannot cancel a build; its time limit ends it");
    }
}
