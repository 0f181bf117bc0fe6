//! A session of a client, its unnamed sandbox, and the forks of that sandbox.
//!
//! ```text
//! none ──first call without a sandbox id──> created ──────terminate, or the sandbox has ended──> none
//!   └───────────────────end of the session──────┴──> ended
//! ```
//!
//! If the termination at the end of a session fails, the lifetime of the sandbox ends it: an unnamed sandbox is never paused, so its
//! lifetime does not stop. Forks have the timeouts of the unnamed sandbox, so the same is true of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use sandboxd_client::{Client, Code, Create, ImageStatus, Sandbox, SandboxId};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::failure::ToolFailure;

/// The metadata key that marks sandboxes of this server.
pub const MARK: &str = "mcp";
/// How long the end of a session waits for its calls and for the termination.
const END_TIMEOUT: Duration = Duration::from_secs(15);
/// Sandboxes that are terminated at the same time.
const TERMINATIONS: usize = 10;

/// The image that the operator or the user leaves if they choose none.
const DEFAULT_IMAGE: &str = "ubuntu:24.04";
/// The image of the catalogue that has the code interpreter.
const CODE_IMAGE: &str = "code-interpreter";

/// What the call that creates the unnamed sandbox does in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstUse {
    Any,
    /// It runs code, which only an image with the interpreter can do.
    Code,
}

/// What the operator or the user chose for all sandboxes that this server creates.
#[derive(Debug, Clone)]
pub struct McpSettings {
    /// The image of sandboxes, unless `create_sandbox` names another one.
    pub image: String,
    /// The lifetime of unnamed sandboxes.
    pub lifetime: Duration,
    /// If set, sandboxes and the steps of builds can reach only these domains, whatever a call asks for.
    pub only_domains: Option<Vec<String>>,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self { image: DEFAULT_IMAGE.to_owned(), lifetime: Duration::from_secs(3600), only_domains: None }
    }
}

impl McpSettings {
    /// A create request with the settings that no call can change.
    pub fn create(
        &self,
        client: &Client,
        image: Option<&str>,
        domains: Option<Vec<String>>,
    ) -> Result<Create, ToolFailure> {
        let create = client.create(image.unwrap_or(&self.image));
        Ok(match self.domains(domains)? {
            Some(domains) => create.only_domains(domains),
            None => create,
        })
    }

    /// The only domains that a sandbox can reach, if a call asks for these; none if it can reach all.
    pub fn domains(&self, domains: Option<Vec<String>>) -> Result<Option<Vec<String>>, ToolFailure> {
        let Some(only) = &self.only_domains else { return Ok(domains) };
        let Some(domains) = domains else { return Ok(Some(only.clone())) };
        if let Some(other) = domains.iter().find(|domain| !only.contains(domain)) {
            return Err(ToolFailure::argument(format!(
                "allowedDomains has '{other}', but this server allows only: {}.",
                if only.is_empty() { "none".to_owned() } else { only.join(", ") }
            )));
        }
        Ok(Some(domains))
    }

    /// Whether the unnamed sandbox should have the code interpreter, which a chosen image may lack on purpose.
    fn wants_interpreter(&self, first: FirstUse) -> bool {
        first == FirstUse::Code && self.image == DEFAULT_IMAGE
    }

    /// Creates a sandbox for calls that name none.
    pub async fn create_unnamed(&self, client: &Client, first: FirstUse) -> Result<Sandbox, ToolFailure> {
        // A pull takes minutes, so an image that is not on the host is no choice.
        let image = self.wants_interpreter(first) && is_ready(client, CODE_IMAGE).await;
        let create = self.create(client, image.then_some(CODE_IMAGE), None)?;
        // Without the automatic pause: a paused sandbox would be kept for days.
        Ok(create.timeout(self.lifetime).idle_timeout(Duration::ZERO).metadata(MARK, "unnamed").await?)
    }
}

/// False as well if the service does not say, for example to a key that may not read.
async fn is_ready(client: &Client, image: &str) -> bool {
    let found = client.image(image).await;
    found.is_ok_and(|found| found.is_some_and(|it| it.name == image && it.status == ImageStatus::Ready))
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
    /// Forks of the unnamed sandbox, and forks of these. Some may have ended.
    forks: Arc<Mutex<Vec<Sandbox>>>,
    calls: TaskTracker,
}

impl Default for Session {
    fn default() -> Self {
        let calls = TaskTracker::new();
        calls.close();
        Self { unnamed: Arc::new(Mutex::new(Unnamed::None)), forks: Arc::default(), calls }
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
            && self.forks.try_lock().is_ok_and(|forks| forks.is_empty())
            && self.unnamed.try_lock().is_ok_and(|unnamed| !matches!(*unnamed, Unnamed::Created(_)))
    }

    /// The unnamed sandbox, which the first call creates; and whether this call did.
    pub async fn unnamed(
        &self,
        client: &Client,
        settings: &McpSettings,
        first: FirstUse,
    ) -> Result<(Sandbox, bool), ToolFailure> {
        // Held during the create, so that concurrent first calls get one sandbox.
        let mut unnamed = self.unnamed.lock().await;
        match &*unnamed {
            Unnamed::Created(sandbox) => Ok((sandbox.clone(), false)),
            Unnamed::Ended => Err(ToolFailure::new("The session has ended.", "Start a new session.")),
            Unnamed::None => {
                let sandbox = settings.create_unnamed(client, first).await?;
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

    /// Whether the end of the session terminates this sandbox.
    pub async fn owns(&self, sandbox: &Sandbox) -> bool {
        self.owned().await.contains(sandbox.id())
    }

    /// The sandboxes that the end of the session terminates.
    pub async fn owned(&self) -> Vec<SandboxId> {
        let unnamed = self.created().await;
        let forks = self.forks.lock().await;
        unnamed.iter().chain(forks.iter()).map(|sandbox| sandbox.id().clone()).collect()
    }

    /// The end of the session terminates these forks, too.
    pub async fn own(&self, forks: &[Sandbox]) {
        self.forks.lock().await.extend_from_slice(forks);
    }

    /// This sandbox has ended. If it is the unnamed one, the next call creates another.
    pub async fn forget(&self, sandbox: &Sandbox) -> bool {
        self.forks.lock().await.retain(|fork| fork.id() != sandbox.id());
        let mut unnamed = self.unnamed.lock().await;
        let is_it = matches!(&*unnamed, Unnamed::Created(created) if created.id() == sandbox.id());
        if is_it {
            *unnamed = Unnamed::None;
        }
        is_it
    }

    /// Waits for the calls of the session, which were cancelled, and terminates its sandboxes.
    pub async fn end(&self) {
        let end = async {
            self.calls.wait().await;
            let unnamed = std::mem::replace(&mut *self.unnamed.lock().await, Unnamed::Ended);
            let unnamed = match unnamed {
                Unnamed::Created(sandbox) => Some(sandbox),
                Unnamed::None | Unnamed::Ended => None,
            };
            let forks = std::mem::take(&mut *self.forks.lock().await);
            terminate_all(unnamed.into_iter().chain(forks)).await;
        };
        if tokio::time::timeout(END_TIMEOUT, end).await.is_err() {
            tracing::warn!("the end of an MCP session timed out; the lifetime of its sandboxes ends them");
        }
    }
}

/// Terminates sandboxes of which nobody has the ids any more.
pub async fn terminate_all(sandboxes: impl IntoIterator<Item = Sandbox>) {
    let terminate = async |sandbox: Sandbox| {
        if let Err(error) = sandbox.terminate().await
            && error.code() != Code::SandboxNotFound
        {
            tracing::warn!(sandbox = %sandbox.id(), %error, "cannot terminate a sandbox of an MCP session; its lifetime ends it");
        }
    };
    stream::iter(sandboxes).for_each_concurrent(TERMINATIONS, terminate).await;
}

/// Ends a session when its server is dropped.
#[derive(Debug)]
pub struct EndOnDrop {
    session: Session,
    /// Until the session has ended.
    ending: Option<TaskTrackerToken>,
}

impl EndOnDrop {
    /// A guard that ends the session when it is dropped. `endings` waits for that.
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    type List = Option<&'static [&'static str]>;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn settings(only: Option<&[&str]>) -> McpSettings {
        McpSettings { only_domains: only.map(names), ..McpSettings::default() }
    }

    #[test]
    fn a_call_can_narrow_what_the_server_allows_and_never_widen_it() {
        let table: [(List, List, List); 8] = [
            (None, None, None),
            (None, Some(&["a.example"]), Some(&["a.example"])),
            (None, Some(&[]), Some(&[])),
            (Some(&["a.example", "b.example"]), None, Some(&["a.example", "b.example"])),
            (Some(&["a.example", "b.example"]), Some(&["b.example"]), Some(&["b.example"])),
            (Some(&["a.example"]), Some(&[]), Some(&[])),
            (Some(&[]), None, Some(&[])),
            (Some(&["*.example"]), Some(&["*.example"]), Some(&["*.example"])),
        ];
        for (only, asked, got) in table {
            let domains = settings(only).domains(asked.map(names)).unwrap();
            assert_eq!(domains, got.map(names), "{only:?} {asked:?}");
        }
    }

    #[test]
    fn domains_that_the_server_does_not_allow_are_refused() {
        let table: [(&[&str], &[&str], &str); 4] = [
            (
                &["a.example", "b.example"],
                &["a.example", "c.example", "d.example"],
                "allowedDomains has 'c.example', but this server allows only: a.example, b.example.",
            ),
            (&[], &["a.example"], "allowedDomains has 'a.example', but this server allows only: none."),
            // A domain below an allowed wildcard is refused, too: the entries are compared, not what they match.
            (
                &["*.example"],
                &["a.example"],
                "allowedDomains has 'a.example', but this server allows only: *.example.",
            ),
            (
                &["a.example"],
                &["*.a.example"],
                "allowedDomains has '*.a.example', but this server allows only: a.example.",
            ),
        ];
        for (only, asked, message) in table {
            let failure = settings(Some(only)).domains(Some(names(asked))).unwrap_err();
            let text = format!("{failure:?}");
            assert!(text.contains(message), "{text}");
        }
    }

    #[test]
    fn a_session_that_begins_with_code_gets_the_interpreter_unless_an_image_was_chosen() {
        let chosen = McpSettings { image: "python:3.12".to_owned(), ..McpSettings::default() };
        assert!(McpSettings::default().wants_interpreter(FirstUse::Code));
        assert!(!McpSettings::default().wants_interpreter(FirstUse::Any));
        assert!(!chosen.wants_interpreter(FirstUse::Code));
    }

    #[tokio::test]
    async fn a_session_is_unused_without_a_call_and_a_sandbox() {
        let session = Session::default();
        assert!(session.is_unused());
        let call = session.call();
        assert!(!session.is_unused(), "a call may be creating the sandbox");
        assert!(!session.clone().is_unused(), "a clone is the same session");
        drop(call);
        assert!(session.is_unused());
        let held = session.unnamed.lock().await;
        assert!(!session.is_unused(), "somebody changes it now");
        drop(held);
        session.end().await;
        assert!(session.is_unused(), "it is over");
        assert!(matches!(*session.unnamed.lock().await, Unnamed::Ended));
    }

    #[tokio::test]
    async fn the_end_of_a_session_waits_for_its_calls() {
        let session = Session::default();
        let call = session.call();
        let mut end = std::pin::pin!(session.end());
        assert!(end.as_mut().now_or_never().is_none());
        assert!(
            matches!(*session.unnamed.lock().await, Unnamed::None),
            "the call can still create the sandbox"
        );
        drop(call);
        end.await;
        assert!(matches!(*session.unnamed.lock().await, Unnamed::Ended));
    }
}
