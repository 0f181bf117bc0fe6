//! `expose_port`.

use std::time::Duration;

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{self, Effect};
use super::{Call, json_result, parse};
use crate::failure::Failure;

const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);

pub fn tool() -> Tool {
    schema::tool(
        "expose_port",
        "Expose a port",
        "Make a TCP port of a sandbox reachable over HTTP(S), and return a URL for the user's browser. The program in the sandbox must listen on 0.0.0.0, 127.0.0.1 or \
         localhost; start it with run_command and background: true. By default the port is private: accessUrl has a token that is valid for one hour. \
         Call the tool again for a new token.",
        Effect::Adds,
        schema::input(
            json!({
                "port": schema::integer(1, 65_535, "The port inside of the sandbox."),
                "public": {"type": "boolean", "description": "Let everyone who knows the URL connect, without a token. Only if the user asks for it. Default: false."},
                "sandboxId": schema::sandbox_id()
            }),
            &["port"],
        ),
        schema::output(
            json!({
                "sandboxId": schema::text("The sandbox."),
                "port": {"type": "integer"},
                "url": schema::text("The URL, for clients that send an API key or a token."),
                "accessUrl": schema::text("The URL to open in a browser. That of a private port contains a token."),
                "public": {"type": "boolean"},
                "expiresAt": schema::text("When the token of accessUrl expires.")
            }),
            &["sandboxId", "port", "url", "accessUrl", "public"],
        ),
    )
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    port: u16,
    #[serde(default)]
    public: bool,
    sandbox_id: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Exposed {
    sandbox_id: String,
    port: u16,
    url: String,
    access_url: String,
    public: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

pub async fn call(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let arguments: Arguments = parse(arguments)?;
    if arguments.port == 0 {
        return Err(Failure::argument("port is 0; it must be 1 to 65535."));
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
    json_result(target.note, &exposed)
}
