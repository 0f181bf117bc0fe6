//! The tools: their table, and what they share.
//!
//! A tool is declared once, by the type of its arguments ([`Declared`]): the schemas derive from that type and from the type of the
//! output, the description is the comment of the type, and [`ROUTES`] is the only list. Tools that manage one kind of object have
//! actions. Every tool has bounded results.

mod alternatives;
mod cancel_on_drop;
mod code;
mod create;
mod expose;
mod files;
mod fork;
mod list;
mod output;
mod page;
mod renamed;
mod reply;
mod rollback;
mod run;
mod sandboxes;
mod schema;
mod shared;
mod snapshots;
mod templates;
mod terminate;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rmcp::model::{CallToolResult, JsonObject, ProgressNotificationParam, ProgressToken, Tool};
use rmcp::service::{Peer, RequestContext, RoleServer};
use sandboxd_client::{Client, Code, Error, Sandbox};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::reply::ToolReply;
use self::schema::Effect;
use crate::failure::ToolFailure;
use crate::session::{FirstUse, McpSettings, Session};

/// How long the notification of progress may take: a client that does not read must not stop the call.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest message of a notification.
const LONGEST_PROGRESS: usize = 200;

/// A tool, declared by the type of its arguments. The comment of that type is the description which the model reads, and the
/// comments of its fields describe the arguments.
pub trait Declared: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    /// The name for people.
    const TITLE: &'static str;
    const EFFECT: Effect;
    /// The structured content of a result.
    type Output: Serialize + JsonSchema;

    /// Does what the tool is for.
    fn call(
        self,
        call: &ToolCall,
    ) -> impl Future<Output = Result<ToolReply<Self::Output>, ToolFailure>> + Send;
}

/// A tool in the table.
struct ToolRoute {
    tool: Tool,
    call: for<'a> fn(&'a ToolCall, JsonObject) -> BoxFuture<'a, Result<CallToolResult, ToolFailure>>,
}

fn route<T: Declared>() -> ToolRoute {
    ToolRoute { tool: schema::tool::<T>(), call: dispatch::<T> }
}

fn dispatch<T: Declared>(
    call: &ToolCall,
    arguments: JsonObject,
) -> BoxFuture<'_, Result<CallToolResult, ToolFailure>> {
    Box::pin(async move { parse::<T>(arguments)?.call(call).await?.into_result() })
}

static ROUTES: LazyLock<[ToolRoute; 10]> = LazyLock::new(|| {
    [
        route::<run::RunCommand>(),
        route::<code::RunCode>(),
        route::<files::ReadFile>(),
        route::<files::WriteFile>(),
        route::<files::ListFiles>(),
        route::<expose::ExposePort>(),
        route::<create::CreateSandbox>(),
        route::<sandboxes::ManageSandboxes>(),
        route::<snapshots::ManageSnapshots>(),
        route::<templates::ManageTemplates>(),
    ]
});

/// The definitions of all tools.
pub fn all() -> impl ExactSizeIterator<Item = &'static Tool> {
    ROUTES.iter().map(|route| &route.tool)
}

/// Calls a tool; none if there is no tool of this name.
pub async fn call(
    name: &str,
    call: &ToolCall,
    arguments: JsonObject,
) -> Option<Result<CallToolResult, ToolFailure>> {
    match ROUTES.iter().find(|route| route.tool.name == name) {
        Some(route) => Some((route.call)(call, arguments).await),
        None => renamed::failure(name).map(Err),
    }
}

/// A call of a tool.
pub struct ToolCall {
    pub client: Client,
    pub session: Option<Session>,
    pub settings: Arc<McpSettings>,
    pub progress: Option<ProgressSender>,
    pub cancelled: CancellationToken,
}

/// The sandbox of a call.
pub struct CallTarget {
    pub sandbox: Sandbox,
    /// What the model has to know of it.
    pub note: Option<String>,
}

impl ToolCall {
    /// The sandbox with this id or name, or the unnamed one.
    pub async fn target(&self, id: Option<&str>) -> Result<CallTarget, ToolFailure> {
        self.target_for(id, FirstUse::Any).await
    }

    /// As [`target`](Self::target). `first` decides on the image of an unnamed one that this call creates.
    pub async fn target_for(&self, id: Option<&str>, first: FirstUse) -> Result<CallTarget, ToolFailure> {
        if let Some(id) = id {
            return Ok(CallTarget { sandbox: self.client.find(id).await?, note: None });
        }
        let Some(session) = &self.session else {
            return Err(ToolFailure::new(
                "sandboxId is missing, and this connection has no session with a sandbox of its own.",
                "Call create_sandbox once, pass its sandboxId to the other tools, and end it with manage_sandboxes, action terminate.",
            ));
        };
        let (sandbox, is_new) = session.unnamed(&self.client, &self.settings, first).await?;
        let note = is_new.then(|| {
            let image = sandbox.known().map_or_else(|| self.settings.image.clone(), |view| view.image);
            format!("Created the sandbox {} of this session, with the image {image}.", sandbox.id())
        });
        Ok(CallTarget { sandbox, note })
    }

    /// The failure of an operation in a sandbox. The next call of the session gets another unnamed sandbox if this one has ended.
    pub async fn failed(&self, sandbox: &Sandbox, error: Error) -> ToolFailure {
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
            return ToolFailure::new(
                "The sandbox of this session has ended, for example because its lifetime is over. Its files are lost.",
                "Call the tool again to get a new sandbox, and restore the files that you need.",
            );
        }
        error.into()
    }
}

/// Sends notifications of progress, if the client asked for them.
pub struct ProgressSender {
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

impl ProgressSender {
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
fn parse<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, ToolFailure> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| ToolFailure::argument(format!("The arguments are invalid: {error}.")))
}

/// Parses the id of an object, so that no other text becomes a part of a path.
fn parse_id<T: FromStr<Err: Display>>(name: &str, id: &str) -> Result<T, ToolFailure> {
    id.parse().map_err(|error| {
        let shown: String = id.chars().take(100).collect();
        ToolFailure::argument(format!("{name} is '{}', but {error}.", shown.escape_debug()))
    })
}

/// Fails if a number is out of its range.
fn within(name: &str, value: u64, least: u64, most: u64) -> Result<u64, ToolFailure> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(ToolFailure::argument(format!("{name} is {value}; it must be {least} to {most}.")))
}
