//! The streamable HTTP transport, for a service that has authorized the request.
//!
//! Protocol versions before 2026-07-28 have sessions; from that version on every request stands alone. A session belongs to the API
//! key that began it: for every other key it does not exist. The number of sessions is bounded, in all and for one account. A
//! session ends with DELETE, when it is idle, and at the stop of the service.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use hyper::http::{Method, Request, Response, StatusCode};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sandboxd_client::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::{SESSION_HEADER, Server};
use crate::session::Settings;

/// How long a finished response is kept for a client that reconnects. Each has at most some 100 KB.
const RESPONSE_TTL: Duration = Duration::from_secs(5);
/// How long a session waits for its first message.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stop waits for the ends of sessions.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest message: the longest content of a file with every character escaped, and the rest.
pub const BODY_MAX: usize = 8 << 20;
/// One account may hold this part of all sessions.
const ACCOUNT_SHARE: usize = 4;

#[derive(Debug, Clone)]
pub struct HttpSettings {
    pub tools: Settings,
    /// All sessions together.
    pub max_sessions: usize,
    pub idle: Duration,
    /// Ends all sessions.
    pub stop: CancellationToken,
}

/// Who sent a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub account: Arc<str>,
    pub key_id: Arc<str>,
}

/// Why a request was refused before the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The session does not exist, or belongs to another key.
    NoSession,
    TooManySessions,
}

pub type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// The MCP server behind `/mcp`.
pub struct HttpServer {
    service: StreamableHttpService<Server, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    owners: Mutex<HashMap<String, Owned>>,
    slots: Arc<Semaphore>,
    max_of_account: usize,
    endings: TaskTracker,
}

/// An open session.
struct Owned {
    owner: Owner,
    _slot: OwnedSemaphorePermit,
}

impl HttpServer {
    pub fn new(settings: HttpSettings) -> Self {
        let mut sessions = SessionConfig::default();
        sessions.keep_alive = Some(settings.idle);
        sessions.completed_cache_ttl = RESPONSE_TTL;
        sessions.init_timeout = Some(INIT_TIMEOUT);
        let mut manager = LocalSessionManager::default();
        manager.session_config = sessions;
        let manager = Arc::new(manager);
        // The caller of this server checks the key and the origin of every request. A page that rebinds its name has no key.
        let mut config = StreamableHttpServerConfig::default().disable_allowed_hosts();
        config.max_request_body_bytes = BODY_MAX;
        config.cancellation_token = settings.stop;
        let tools = Arc::new(settings.tools);
        let endings = TaskTracker::new();
        let tracker = endings.clone();
        let factory = move || Ok(Server::of_http(Arc::clone(&tools), &tracker));
        Self {
            service: StreamableHttpService::new(factory, Arc::clone(&manager), config),
            manager,
            owners: Mutex::default(),
            slots: Arc::new(Semaphore::new(settings.max_sessions)),
            max_of_account: (settings.max_sessions / ACCOUNT_SHARE).max(1),
            endings,
        }
    }

    /// Answers a request of `owner`, whose key `client` sends.
    pub async fn answer(
        &self,
        mut request: Request<Bytes>,
        owner: Owner,
        client: Client,
    ) -> Result<HttpResponse, Refused> {
        let session = request.headers().get(SESSION_HEADER).map(|id| id.to_str().map(str::to_owned));
        let slot = match session {
            Some(Ok(id)) if self.owns(&owner, &id) => None,
            Some(_) => return Err(Refused::NoSession),
            None if request.method() == Method::POST && is_initialize(request.body()) => {
                Some(self.slot(&owner).await?)
            }
            None => None,
        };
        request.extensions_mut().insert(client);
        let is_delete = request.method() == Method::DELETE;
        let mut response = self.service.handle(request.map(Full::new)).await;
        // Clients take 202 for a failure.
        if is_delete && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::OK;
        }
        let created = response.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok());
        if let (Some(id), Some(slot)) = (created, slot) {
            let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            owners.insert(id.to_owned(), Owned { owner, _slot: slot });
        }
        Ok(response)
    }

    /// The number of open sessions.
    pub fn sessions(&self) -> usize {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until the sandboxes of ended sessions are terminated.
    pub async fn closed(&self) {
        self.endings.close();
        // A session that does not end leaves its sandbox to the lifetime of that.
        if tokio::time::timeout(CLOSE_TIMEOUT, self.endings.wait()).await.is_err() {
            tracing::warn!("not all MCP sessions ended in time");
        }
    }

    fn owns(&self, owner: &Owner, id: &str) -> bool {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(id).is_some_and(|session| session.owner == *owner)
    }

    /// A slot for a new session of this owner.
    async fn slot(&self, owner: &Owner) -> Result<OwnedSemaphorePermit, Refused> {
        let open: Vec<String> = self.manager.sessions.read().await.keys().map(ToString::to_string).collect();
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // Sessions that have ended free their slots here.
        owners.retain(|id, _| open.contains(id));
        let own = owners.values().filter(|session| session.owner.account == owner.account).count();
        if own >= self.max_of_account {
            return Err(Refused::TooManySessions);
        }
        Arc::clone(&self.slots).try_acquire_owned().map_err(|_| Refused::TooManySessions)
    }
}

/// Whether the message asks for a new session. Others without a session id cannot create one.
fn is_initialize(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Message {
        method: String,
    }
    serde_json::from_slice::<Message>(body).is_ok_and(|message| message.method == "initialize")
}
