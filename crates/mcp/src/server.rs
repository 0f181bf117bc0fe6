//! The handler of MCP requests: lists the tools and dispatches calls.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use sandboxd_client::Client;
use tokio_util::task::TaskTracker;

use crate::failure::ToolFailure;
use crate::session::{EndOnDrop, McpSettings, Session};
use crate::tools::{self, ProgressSender, ToolCall};

const INSTRUCTIONS: &str = "Run commands and code, and read and write files, in isolated Linux sandboxes. \
    Every tool that works in a sandbox takes an optional sandboxId. Without it, the tool uses the sandbox of this session, which is \
    created on first use and terminated with the session; its files are then lost. Use create_sandbox only for another image, \
    several sandboxes, or one that outlives the session. To keep the state of a sandbox use manage_snapshots, to copy it \
    manage_sandboxes with the action fork; to have programs installed in every new sandbox use manage_templates. Results have a bounded size: if a result has a cursor or a next offset, \
    call the same tool with it to read on.";
/// The header with the id of a session.
pub const SESSION_HEADER: &str = "mcp-session-id";

/// Where a call gets its client from.
#[derive(Debug, Clone)]
pub enum Clients {
    One(Client),
    /// The request carries a client with the key of its caller, as an extension of its HTTP head.
    OfRequest,
}

/// The MCP server of one connection or session.
#[derive(Debug)]
pub struct Server {
    clients: Clients,
    /// None if there is no end of the connection at which a sandbox could be terminated.
    session: Option<Session>,
    settings: Arc<McpSettings>,
    _end: Option<EndOnDrop>,
}

impl Server {
    /// A server for one connection. Without a session, calls have to name their sandboxes.
    pub fn new(clients: Clients, session: Option<Session>, settings: impl Into<Arc<McpSettings>>) -> Self {
        Self { clients, session, settings: settings.into(), _end: None }
    }

    /// The server of one session over HTTP, which ends when it is dropped, or of one request.
    pub fn of_http(settings: Arc<McpSettings>, endings: &TaskTracker) -> Self {
        let session = Session::default();
        let end = EndOnDrop::new(session.clone(), endings);
        Self { clients: Clients::OfRequest, session: Some(session), settings, _end: Some(end) }
    }

    fn client(&self, context: &RequestContext<RoleServer>) -> Option<Client> {
        match &self.clients {
            Clients::One(client) => Some(client.clone()),
            Clients::OfRequest => head(context)?.extensions.get::<Client>().cloned(),
        }
    }

    /// The session of a request. A request over HTTP without a session id has none.
    fn session(&self, context: &RequestContext<RoleServer>) -> Option<&Session> {
        let has_session = match &self.clients {
            Clients::One(_) => true,
            Clients::OfRequest => head(context).is_some_and(|head| head.headers.contains_key(SESSION_HEADER)),
        };
        self.session.as_ref().filter(|_| has_session)
    }
}

fn head(context: &RequestContext<RoleServer>) -> Option<&hyper::http::request::Parts> {
    context.extensions.get()
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let name = Implementation::new("sandboxd", env!("CARGO_PKG_VERSION")).with_title("sandboxd");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(name)
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all().cloned().collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let client = self.client(&context);
        let client = client.ok_or_else(|| ErrorData::internal_error("the request has no client", None))?;
        let session = self.session(&context).cloned();
        let _counted = session.as_ref().map(Session::call);
        let call = ToolCall {
            client,
            session,
            settings: Arc::clone(&self.settings),
            progress: ProgressSender::of(&context),
            cancelled: context.ct.clone(),
        };
        let arguments = request.arguments.unwrap_or_default();
        let result = match tools::call(&request.name, &call, arguments).await {
            Some(result) => result.unwrap_or_else(ToolFailure::into_result),
            None => {
                let name: String = request.name.chars().take(100).collect();
                let message =
                    format!("there is no tool '{}'; tools/list lists the tools", name.escape_debug());
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        Ok(CallToolResponse::Complete(result))
    }
}
