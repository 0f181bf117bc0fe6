//! `expose_port`.

use std::time::Duration;

use sandboxd_client::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reply::ToolReply;
use super::schema::Effect;
use super::shared::SandboxReference;
use super::{Declared, ToolCall};
use crate::failure::ToolFailure;

const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);

/// Make a TCP port of a sandbox reachable over HTTP(S), and return a URL for the user's browser. The program in the sandbox must listen
/// on 0.0.0.0, 127.0.0.1 or localhost; start it with run_command and background: true. By default the port is private: accessUrl has a
/// token that is valid for one hour. Call the tool again for a new token.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExposePort {
    /// The port inside of the sandbox.
    #[schemars(range(min = 1, max = 65_535))]
    port: u16,
    /// Let everyone who knows the URL connect, without a token. Only if the user asks for it. Default: false.
    #[serde(default)]
    public: bool,
    sandbox_id: Option<SandboxReference>,
}

impl Declared for ExposePort {
    const NAME: &'static str = "expose_port";
    const TITLE: &'static str = "Expose a port";
    const EFFECT: Effect = Effect::Adds;
    type Output = Exposed;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<Exposed>, ToolFailure> {
        expose(call, self).await
    }
}

/// A reachable port.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exposed {
    /// The sandbox.
    sandbox_id: String,
    port: u16,
    /// The URL, for clients that send an API key or a token.
    url: String,
    /// The URL to open in a browser. That of a private port contains a token.
    access_url: String,
    public: bool,
    /// When the token of accessUrl expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    expires_at: Option<Timestamp>,
}

async fn expose(call: &ToolCall, arguments: ExposePort) -> Result<ToolReply<Exposed>, ToolFailure> {
    if arguments.port == 0 {
        return Err(ToolFailure::argument("port is 0; it must be 1 to 65535."));
    }
    let target = call.target(arguments.sandbox_id.as_deref()).await?;
    let sandbox = &target.sandbox;
    let mut expose = sandbox.expose(arguments.port);
    if arguments.public {
        expose = expose.public();
    }
    let port = match expose.await {
        Ok(port) => port,
        Err(error) => return Err(call.failed(sandbox, error).await),
    };
    let mut exposed = Exposed {
        sandbox_id: sandbox.id().to_string(),
        port: arguments.port,
        access_url: port.url.clone(),
        url: port.url,
        public: arguments.public,
        expires_at: None,
    };
    if !arguments.public {
        let token = sandbox.port_token(arguments.port).expires_in(TOKEN_LIFETIME).await;
        match token {
            Ok(token) => (exposed.access_url, exposed.expires_at) = (token.url, Some(token.expires_at)),
            Err(error) => return Err(call.failed(sandbox, error).await),
        }
    }
    Ok(ToolReply::json(target.note, exposed))
}
