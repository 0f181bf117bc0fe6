//! A session of a client, and its unnamed sandbox.
//!
//! ```text
//! none ──first call without a sandbox id──> created ──terminate_sandbox, or the sandbox has ended──> none
//!   └───────────────────end of the session──────┴──> ended
//! ```
//!
//! If the termination at the end of a session fails, the lifetime of the sandbox ends it: an unnamed sandbox is never paused, so its
//! lifetime does not stop.

use std::sync::Arc;
use std::time::Duration;

use sandboxd_client::{Client, Code, Create, Sandbox};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::failure::Failure;

/// The metadata key that marks sandboxes of this server.
pub const MARK: &str = "mcp";
/// How long the end of a session waits for its calls and for the termination.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// What the operator or the user chose for all sandboxes that this server creates.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The image of sandboxes, unless `create_sandbox` names another one.
    pub image: String,
    /// The lifetime of unnamed sandboxes.
    pub lifetime: Duration,
    /// If set, sandboxes can reach only these domains, whatever `create_sandbox` asks for.
    pub only_domains: Option<Vec<String>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { image: "ubuntu:24.04".to_owned(), lifetime: Duration::from_secs(3600), only_domains: None }
    }
}

impl Settings {
    /// A create request with the settings that no call can change.
    pub fn create(
        &self,
        client: &Client,
        image: Option<&str>,
        domains: Option<Vec<String>>,
    ) -> Result<Create, Failure> {
        let create = client.create(image.unwrap_or(&self.image));
        let domains = match (&self.only_domains, domains) {
            (Some(only), None) => Some(only.clone()),
            (Some(only), Some(domains)) => {
                if let Some(other) = domains.iter().find(|domain| !only.contains(domain)) {
                    return Err(Failure::argument(format!(
                        "allowedDomains has '{other}', but this server allows only: {}.",
                        if only.is_empty() { "none".to_owned() } else { only.join(", ") }
                    )));
                }
                Some(domains)
            }
            (None, domains) => domains,
        };
        Ok(match domains {
            Some(domains) => create.only_domains(domains),
            None => create,
        })
    }

    /// Creates a sandbox for calls that name none.
    pub async fn create_unnamed(&self, client: &Client) -> Result<Sandbox, Failure> {
        let create = self.create(client, None, None)?;
        // Without the automatic pause: a paused sandbox would be kept for days.
        Ok(create.timeout(self.lifetime).idle_timeout(Duration::ZERO).metadata(MARK, "unnamed").await?)
    }
}

/// The unnamed sandbox of a session.
#[derive(Debug)]
enum Unnamed {
    None,
    Created(Sandbox),
    Ended,
}

/// A session of a client. Clones are the same session.
#[derive(Debug, Clone)]
pub struct Session {
    unnamed: Arc<Mutex<Unnamed>>,
    calls: TaskTracker,
}

impl Default for Session {
    fn default() -> Self {
        let calls = TaskTracker::new();
        calls.close();
        Self { unnamed: Arc::new(Mutex::new(Unnamed::None)), calls }
    }
}

impl Session {
    /// Counts a call, for [`end`](Self::end).
    pub fn call(&self) -> TaskTrackerToken {
        self.calls.token()
    }

    /// Whether there is nothing to end.
    pub fn is_unused(&self) -> bool {
        self.calls.is_empty()
            && self.unnamed.try_lock().is_ok_and(|unnamed| !matches!(*unnamed, Unnamed::Created(_)))
    }

    /// The unnamed sandbox, which the first call creates; and whether this call did.
    pub async fn unnamed(&self, client: &Client, settings: &Settings) -> Result<(Sandbox, bool), Failure> {
        // Held during the create, so that concurrent first calls get one sandbox.
        let mut unnamed = self.unnamed.lock().await;
        match &*unnamed {
            Unnamed::Created(sandbox) => Ok((sandbox.clone(), false)),
            Unnamed::Ended => Err(Failure::new("The session has ended.", "Start a new session.")),
            Unnamed::None => {
                let sandbox = settings.create_unnamed(client).await?;
                *unnamed = Unnamed::Created(sandbox.clone());
                Ok((sandbox, true))
            }
        }
    }

    /// The unnamed sandbox, if there is one.
    pub async fn created(&self) -> Option<Sandbox> {
        match &*self.unnamed.lock().await {
            Unnamed::Created(sandbox) => Some(sandbox.clone()),
            Unnamed::None | Unnamed::Ended => None,
        }
    }

    /// The unnamed sandbox has ended if it is this one: the next call creates another.
    pub async fn forget(&self, sandbox: &Sandbox) -> bool {
        let mut unnamed = self.unnamed.lock().await;
        let is_it = matches!(&*unnamed, Unnamed::Created(created) if created.id() == sandbox.id());
        if is_it {
            *unnamed = Unnamed::None;
        }
        is_it
    }

    /// Waits for the calls of the session, which were cancelled, and terminates the unnamed sandbox.
    pub async fn end(&self) {
        let end = async {
            self.calls.wait().await;
            let unnamed = std::mem::replace(&mut *self.unnamed.lock().await, Unnamed::Ended);
            let Unnamed::Created(sandbox) = unnamed else { return };
            if let Err(error) = sandbox.terminate().await
                && error.code() != Code::SandboxNotFound
            {
                tracing::warn!(sandbox = %sandbox.id(), %error, "cannot terminate the sandbox of an MCP session; its lifetime ends it");
            }
        };
        if tokio::time::timeout(END_TIMEOUT, end).await.is_err() {
            tracing::warn!("the end of an MCP session timed out; the lifetime of its sandbox ends it");
        }
    }
}

/// Ends a session when its server is dropped.
#[derive(Debug)]
pub struct EndOnDrop {
    session: Session,
    /// Until the session has ended.
    ending: Option<TaskTrackerToken>,
}

impl EndOnDrop {
    pub fn new(session: Session, endings: &TaskTracker) -> Self {
        Self { session, ending: Some(endings.token()) }
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let (session, ending) = (self.session.clone(), self.ending.take());
        // A server that answered one request without a session has none to end.
        if session.is_unused() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                session.end().await;
                drop(ending);
            });
        }
    }
}
