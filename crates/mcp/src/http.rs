//! The streamable HTTP transport, for a service that has authorized the request.
//!
//! Protocol versions before 2026-07-28 have sessions; from that version on every request stands alone. A session belongs to the API
//! key that began it: for every other key it does not exist. The number of sessions is bounded, in all and for one account: a request
//! takes a [`Slot`] before it begins a session, and the session holds it to its end. A session ends with DELETE, when it is idle, and
//! at the stop of the service.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::IgnorePoison;
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
use crate::session::McpSettings;

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

/// What the server needs to serve MCP over HTTP.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    pub tools: McpSettings,
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
    /// The account has as many sessions as it may have.
    TooManyOfAccount { most: usize },
    /// The service has as many sessions as it may have.
    TooManyOfAll { most: usize },
    /// The session could not begin; the reason is in the log.
    Failed,
}

/// A response, whose body may be a stream of events.
pub type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// The MCP server behind `/mcp`.
pub struct HttpServer {
    service: StreamableHttpService<Server, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    owners: Arc<Owners>,
    slots: Arc<Slots>,
    endings: TaskTracker,
}

/// The open sessions by id.
#[derive(Default)]
struct Owners(Mutex<HashMap<String, Owned>>);

/// An open session.
struct Owned {
    owner: Owner,
    _slot: Slot,
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Owned>> {
        self.0.lock().ignore_poison()
    }
}

/// The sessions that exist or are about to begin.
struct Slots {
    all: Arc<Semaphore>,
    max_of_all: usize,
    max_of_account: usize,
    /// Slots by account; accounts without one have no entry.
    of_accounts: Mutex<HashMap<Arc<str>, usize>>,
}

impl Slots {
    fn of_accounts(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.of_accounts.lock().ignore_poison()
    }

    /// Checks and counts in one step: concurrent requests never get more than the share of their account.
    fn take(self: &Arc<Self>, account: &Arc<str>) -> Result<Slot, Refused> {
        let mut of_accounts = self.of_accounts();
        let own = of_accounts.get(account).copied().unwrap_or(0);
        if own >= self.max_of_account {
            return Err(Refused::TooManyOfAccount { most: self.max_of_account });
        }
        let none_left = |_| Refused::TooManyOfAll { most: self.max_of_all };
        let permit = Arc::clone(&self.all).try_acquire_owned().map_err(none_left)?;
        of_accounts.insert(Arc::clone(account), own + 1);
        Ok(Slot { slots: Arc::clone(self), account: Arc::clone(account), _permit: permit })
    }
}

/// One session of an account, until it is dropped.
struct Slot {
    slots: Arc<Slots>,
    account: Arc<str>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut of_accounts = self.slots.of_accounts();
        if let Some(own) = of_accounts.get_mut(&self.account) {
            *own -= 1;
            if *own == 0 {
                of_accounts.remove(&self.account);
            }
        }
    }
}

impl HttpServer {
    /// A server, which has no session yet.
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
            owners: Arc::default(),
            slots: Arc::new(Slots {
                all: Arc::new(Semaphore::new(settings.max_sessions)),
                max_of_all: settings.max_sessions,
                max_of_account: (settings.max_sessions / ACCOUNT_SHARE).max(1),
                of_accounts: Mutex::default(),
            }),
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
        let request = request.map(Full::new);
        let Some(slot) = slot else {
            let is_delete = request.method() == Method::DELETE;
            let mut response = self.service.handle(request).await;
            // Clients take 202 for a failure.
            if is_delete && response.status() == StatusCode::ACCEPTED {
                *response.status_mut() = StatusCode::OK;
            }
            return Ok(response);
        };
        // In a task of its own: if the client disconnects, a session that has begun must not lose its slot.
        let (service, owners) = (self.service.clone(), Arc::clone(&self.owners));
        let beginning = self.endings.spawn(async move {
            let response = service.handle(request).await;
            if let Some(id) = response.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok()) {
                owners.lock().insert(id.to_owned(), Owned { owner, _slot: slot });
            }
            response
        });
        beginning.await.map_err(|_| Refused::Failed)
    }

    /// The number of open sessions.
    pub fn sessions(&self) -> usize {
        self.owners.lock().len()
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
        let owners = self.owners.lock();
        owners.get(id).is_some_and(|session| session.owner == *owner)
    }

    /// A slot for a new session of this owner.
    async fn slot(&self, owner: &Owner) -> Result<Slot, Refused> {
        // A session that begins meanwhile is in neither list, and stays.
        let known: HashSet<String> = self.owners.lock().keys().cloned().collect();
        let open: HashSet<String> =
            self.manager.sessions.read().await.keys().map(ToString::to_string).collect();
        // Sessions that have ended free their slots here.
        self.owners.lock().retain(|id, _| !known.contains(id) || open.contains(id));
        self.slots.take(&owner.account)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(all: usize, of_account: usize) -> Arc<Slots> {
        Arc::new(Slots {
            all: Arc::new(Semaphore::new(all)),
            max_of_all: all,
            max_of_account: of_account,
            of_accounts: Mutex::default(),
        })
    }

    fn server(max_sessions: usize) -> HttpServer {
        HttpServer::new(HttpSettings {
            tools: McpSettings::default(),
            max_sessions,
            idle: Duration::from_secs(60),
            stop: CancellationToken::new(),
        })
    }

    fn owner(account: &str, key_id: &str) -> Owner {
        Owner { account: account.into(), key_id: key_id.into() }
    }

    #[test]
    fn an_account_has_a_quarter_of_the_sessions_and_at_least_one() {
        for (all, most) in [(1, 1), (3, 1), (4, 1), (7, 1), (8, 2), (1000, 250)] {
            let server = server(all);
            assert_eq!((server.slots.max_of_all, server.slots.max_of_account), (all, most));
            assert_eq!(server.slots.all.available_permits(), all);
        }
    }

    #[test]
    fn an_account_cannot_take_the_slots_of_others() {
        let slots = slots(3, 2);
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        let _first = slots.take(&a).unwrap();
        let second = slots.take(&a).unwrap();
        assert_eq!(slots.take(&a).err(), Some(Refused::TooManyOfAccount { most: 2 }));
        let _of_b = slots.take(&b).unwrap();
        assert_eq!(slots.take(&b).err(), Some(Refused::TooManyOfAll { most: 3 }));
        // What an account can change itself is named first.
        assert_eq!(slots.take(&a).err(), Some(Refused::TooManyOfAccount { most: 2 }));
        drop(second);
        assert!(slots.take(&b).is_ok(), "a slot of one account is free for all");
    }

    #[test]
    fn slots_are_given_back_and_accounts_without_one_forgotten() {
        let slots = slots(2, 2);
        let account: Arc<str> = "a".into();
        let (first, second) = (slots.take(&account).unwrap(), slots.take(&account).unwrap());
        assert_eq!(slots.of_accounts().get(&account), Some(&2));
        drop(first);
        assert_eq!(slots.of_accounts().get(&account), Some(&1));
        drop(second);
        assert!(slots.of_accounts().is_empty());
        assert_eq!(slots.all.available_permits(), 2);
        let other = slots.take(&"b".into()).unwrap();
        let another = slots.take(&"c".into()).unwrap();
        assert_eq!(slots.take(&account).err(), Some(Refused::TooManyOfAll { most: 2 }));
        assert_eq!(slots.of_accounts().get(&account), None, "a refused account counts nothing");
        drop((other, another));
    }

    #[test]
    fn a_session_belongs_to_the_key_that_began_it() {
        let server = server(8);
        let own = owner("a", "1");
        let slot = server.slots.take(&own.account).unwrap();
        server.owners.lock().insert("session".to_owned(), Owned { owner: own.clone(), _slot: slot });
        assert!(server.owns(&own, "session"));
        for (other, id) in
            [(owner("a", "2"), "session"), (owner("b", "1"), "session"), (own.clone(), "Session"), (own, "")]
        {
            assert!(!server.owns(&other, id), "{other:?} {id}");
        }
    }

    #[tokio::test]
    async fn sessions_that_have_ended_make_room_for_new_ones() {
        let server = server(1);
        let own = owner("a", "1");
        let slot = server.slot(&own).await.unwrap();
        assert_eq!(server.slot(&own).await.err(), Some(Refused::TooManyOfAccount { most: 1 }));
        server.owners.lock().insert("ended".to_owned(), Owned { owner: own.clone(), _slot: slot });
        assert_eq!(server.sessions(), 1);
        // The manager of the sessions knows none with this id.
        assert!(server.slot(&own).await.is_ok());
        assert_eq!(server.sessions(), 0);
    }

    #[test]
    fn only_initialize_begins_a_session() {
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
            r#"{"method":"initialize"}"#,
            r#"{"method":"init\u0069alize"}"#,
        ] {
            assert!(is_initialize(body.as_bytes()), "{body}");
        }
        for body in [
            "",
            "{}",
            r#"{"method":"initialized"}"#,
            r#"{"method":"notifications/initialized"}"#,
            r#"{"method":"Initialize"}"#,
            r#"{"method":null}"#,
            r#"{"params":{"method":"initialize"}}"#,
            r#"[{"method":"initialize"}]"#,
            r#""initialize""#,
            r#"{"method":"initialize"} {}"#,
        ] {
            assert!(!is_initialize(body.as_bytes()), "{body}");
        }
    }
}
