//! The tools: their definitions, and what they share.
//!
//! Every tool has bounded results. The text of a result is for the model; the structured content has the same data, by the output
//! schema of the tool.

mod build;
mod build_log;
mod code;
mod create;
mod expose;
mod files;
mod fork;
mod list;
mod output;
mod page;
mod rollback;
mod run;
mod schema;
mod snapshots;
mod templates;
mod terminate;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ProgressNotificationParam, ProgressToken, Tool};
use rmcp::service::{Peer, RequestContext, RoleServer};
use sandboxd_client::{Client, Code, Error, Sandbox};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::session::{Session, Settings};

/// How long the notification of progress may take: a client that does not read must not stop the call.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest message of a notification.
const LONGEST_PROGRESS: usize = 200;

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![
        run::tool(),
        code::tool(),
        files::read_tool(),
        files::write_tool(),
        files::list_tool(),
        expose::tool(),
        create::tool(),
        list::tool(),
        terminate::tool(),
        snapshots::take_tool(),
        snapshots::list_tool(),
        rollback::tool(),
        snapshots::delete_tool(),
        fork::tool(),
        build::tool(),
        build_log::tool(),
        templates::list_tool(),
        templates::delete_tool(),
    ]
});

/// The definitions of all tools.
pub fn all() -> &'static [Tool] {
    &TOOLS
}

/// Calls a tool; none if there is no tool of this name.
pub async fn call(name: &str, call: &Call, arguments: JsonObject) -> Option<Result<CallToolResult, Failure>> {
    let result = match name {
        "run_command" => run::call(call, arguments).await,
        "run_code" => code::call(call, arguments).await,
        "read_file" => files::read(call, arguments).await,
        "write_file" => files::write(call, arguments).await,
        "list_files" => files::list(call, arguments).await,
        "expose_port" => expose::call(call, arguments).await,
        "create_sandbox" => create::call(call, arguments).await,
        "list_sandboxes" => list::call(call, arguments).await,
        "terminate_sandbox" => terminate::call(call, arguments).await,
        "take_snapshot" => snapshots::take(call, arguments).await,
        "list_snapshots" => snapshots::list(call, arguments).await,
        "rollback_sandbox" => rollback::call(call, arguments).await,
        "delete_snapshot" => snapshots::delete(call, arguments).await,
        "fork_sandbox" => fork::call(call, arguments).await,
        "build_template" => build::call(call, arguments).await,
        "read_build_log" => build_log::call(call, arguments).await,
        "list_templates" => templates::list(call, arguments).await,
        "delete_template" => templates::delete(call, arguments).await,
        _ => return None,
    };
    Some(result)
}

/// A call of a tool.
pub struct Call {
    pub client: Client,
    pub session: Option<Session>,
    pub settings: Arc<Settings>,
    pub progress: Option<Progress>,
    pub cancelled: CancellationToken,
}

/// The sandbox of a call.
pub struct Target {
    pub sandbox: Sandbox,
    /// What the model has to know of it.
    pub note: Option<String>,
}

impl Call {
    /// The sandbox with this id or name, or the unnamed one.
    pub async fn target(&self, id: Option<&str>) -> Result<Target, Failure> {
        if let Some(id) = id {
            return Ok(Target { sandbox: self.client.find(id).await?, note: None });
        }
        let Some(session) = &self.session else {
            return Err(Failure::new(
                "sandboxId is missing, and this connection has no session with a sandbox of its own.",
                "Call create_sandbox once, pass its sandboxId to the other tools, and call terminate_sandbox at the end.",
            ));
        };
        let (sandbox, is_new) = session.unnamed(&self.client, &self.settings).await?;
        let note = is_new.then(|| {
            format!(
                "Created the sandbox {} of this session, with the image {}.",
                sandbox.id(),
                self.settings.image
            )
        });
        Ok(Target { sandbox, note })
    }

    /// The failure of an operation in a sandbox. The next call of the session gets another unnamed sandbox if this one has ended.
    pub async fn failed(&self, sandbox: &Sandbox, error: Error) -> Failure {
        let has_ended = match error.code() {
            Code::SandboxNotFound => true,
            Code::InvalidState => sandbox
                .refresh()
                .await
                .is_ok_and(|view| view.state == sandboxd_client::SandboxState::Terminated),
            _ => false,
        };
        if has_ended
            && let Some(session) = &self.session
            && session.forget(sandbox).await
        {
            return Failure::new(
                "The sandbox of this session has ended, for example because its lifetime is over. Its files are lost.",
                "Call the tool again to get a new sandbox, and restore the files that you need.",
            );
        }
        error.into()
    }
}

/// Sends notifications of progress, if the client asked for them.
pub struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

impl Progress {
    pub fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self { peer: context.peer.clone(), token })
    }

    /// `progress` must increase from one notification to the next.
    pub async fn send(&self, progress: f64, total: Option<f64>, message: &str) {
        let mut param = ProgressNotificationParam::new(self.token.clone(), progress);
        if let Some(total) = total {
            param = param.with_total(total);
        }
        if !message.is_empty() {
            param = param.with_message(message.chars().take(LONGEST_PROGRESS).collect::<String>());
        }
        // A client that has disconnected gets no result either.
        let _ = tokio::time::timeout(PROGRESS_TIMEOUT, self.peer.notify_progress(param)).await;
    }
}

/// Parses the arguments of a call.
fn parse<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Failure::argument(format!("The arguments are invalid: {error}.")))
}

/// Parses the id of an object, so that no other text becomes a part of a path.
fn parse_id<T: FromStr<Err: Display>>(name: &str, id: &str) -> Result<T, Failure> {
    id.parse().map_err(|error| {
        let shown: String = id.chars().take(100).collect();
        Failure::argument(format!("{name} is '{}', but {error}.", shown.escape_debug()))
    })
}

/// Fails if a number is out of its range.
fn within(name: &str, value: u64, least: u64, most: u64) -> Result<u64, Failure> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Failure::argument(format!("{name} is {value}; it must be {least} to {most}.")))
}

/// A result with these texts, and with the data of `structured`.
fn result(
    texts: impl IntoIterator<Item = String>,
    structured: &impl Serialize,
) -> Result<CallToolResult, Failure> {
    let content = texts.into_iter().filter(|text| !text.is_empty()).map(ContentBlock::text).collect();
    let structured = serde_json::to_value(structured).map_err(|error| unserializable(&error))?;
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(structured);
    Ok(result)
}

/// A result whose text is the structured content as JSON.
fn json_result(note: Option<String>, structured: &impl Serialize) -> Result<CallToolResult, Failure> {
    let text = serde_json::to_string(structured).map_err(|error| unserializable(&error))?;
    result([text, note.unwrap_or_default()], structured)
}

fn unserializable(error: &serde_json::Error) -> Failure {
    Failure::new(format!("The result cannot be serialized: {error}."), "Report this to the user.")
}
