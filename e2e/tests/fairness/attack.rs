//! An attack of one account: programs in its sandboxes, or clients of the service. Dropping or stopping it ends all of them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use e2e::service::{Client, Event, Events, SANDBOXES, Service};
use hyper::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::programs::program;
use crate::victim::{body, text};

/// How long a program may take before the measurement begins without its report.
const TAKING: Duration = Duration::from_secs(25);
/// Longer than every attack.
const TIMEOUT_MS: u64 = 290_000;

/// The factor by which the median of each operation of the victim may grow.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    /// The resource belongs to the sandbox, so the victim is as fast as before, within noise.
    Own,
    /// The kernel shares the resource fairly, or not at all.
    Shared(Share),
    /// As [`Bound::Shared`] under gVisor. In containers nothing bounds what the victim notices, so it is only measured.
    Unbounded(Share),
}

/// A resource that the victim has to share.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    pub of_containers: f64,
    pub under_gvisor: f64,
    pub reason: &'static str,
}

impl Bound {
    pub fn factor(self, isolation: api::Isolation) -> f64 {
        match (self, isolation) {
            (Self::Own, _) => 3.0,
            (Self::Shared(share), api::Isolation::Container) => share.of_containers,
            (Self::Unbounded(_), api::Isolation::Container) => f64::INFINITY,
            (Self::Shared(share) | Self::Unbounded(share), api::Isolation::Gvisor) => share.under_gvisor,
        }
    }
}

/// A row of the suite.
#[derive(Clone, Copy)]
pub struct Attack {
    pub name: &'static str,
    pub means: Means,
    pub bound: Bound,
    pub form: Form,
}

/// When a row is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In both forms.
    Short,
    /// In the long form, and in the short one of containers: under gVisor the resource is one of its own kernel.
    Containers,
    /// Only in the long one, because it needs much time or memory.
    Long,
}

/// How the attacker does it.
#[derive(Clone, Copy)]
pub enum Means {
    /// A program with its arguments, in a number of sandboxes at the same time.
    Program(&'static str, &'static str, usize),
    /// Requests; the function starts their tasks and says what it took.
    Client(Requests),
}

/// Starts the requests of an attack.
pub type Requests = for<'a> fn(&'a mut Attacker) -> Work<'a>;
/// Says what was taken.
pub type Work<'a> = Pin<Box<dyn Future<Output = Result<String>> + 'a>>;

/// What an attack has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub what: String,
    /// A program was killed by the limits of its own sandbox, so what it had becomes free.
    pub is_killed: bool,
}

/// What an attacker holds.
pub struct Attacker {
    pub service: Arc<Service>,
    pub client: Client,
    pub isolation: api::Isolation,
    pub sandboxes: Vec<String>,
    pub tasks: JoinSet<()>,
    programs: Vec<Events>,
}

impl Attacker {
    pub async fn new(service: Arc<Service>, isolation: api::Isolation) -> Result<Self> {
        let client = service.account().await?;
        Ok(Self { service, client, isolation, sandboxes: vec![], tasks: JoinSet::new(), programs: vec![] })
    }

    /// Takes what the attack takes; says what that is. Fails if the attack does not work, which would measure nothing.
    pub async fn begin(&mut self, means: Means) -> Result<Held> {
        match means {
            Means::Program(content, arguments, sandboxes) => {
                let mut taken = Vec::new();
                for _ in 0..sandboxes {
                    let id = self.create().await?;
                    taken.push(self.start(&id, content, arguments).await?);
                }
                Ok(summary(&taken))
            }
            Means::Client(requests) => Ok(Held { what: requests(self).await?, is_killed: false }),
        }
    }

    pub async fn create(&mut self) -> Result<String> {
        let created = self.client.post(SANDBOXES, &body(self.isolation)).await?.is(201)?;
        let id = text(&created["id"])?;
        self.sandboxes.push(id.clone());
        Ok(id)
    }

    /// Starts a program, and waits until it has taken what it can.
    pub async fn start(&mut self, id: &str, content: &str, arguments: &str) -> Result<Held> {
        let request = json!({
            "command": format!("exec perl - {arguments}"), "stdin": program(content), "timeoutMs": TIMEOUT_MS,
        });
        let client = self.client.with_own_connections();
        let call = client.call(Method::POST, &format!("{SANDBOXES}/{id}/execute")).json(&request);
        let mut events = call.stream().await.context("starting the program of the attack")?;
        let begun = tokio::time::timeout(TAKING, async {
            let mut errors = String::new();
            loop {
                match events.next().await {
                    Ok(Some(event)) if event.name == "stdout" && event.data.starts_with("begun ") => {
                        return Ok(Held { what: event.data["begun ".len()..].to_owned(), is_killed: false });
                    }
                    Ok(Some(event)) if event.name == "stderr" => errors.push_str(&event.data),
                    Ok(Some(event)) if event.name == "stdout" => {}
                    Ok(Some(event)) if is_killed(&event) => {
                        return Ok(Held { what: format!("killed: {errors}"), is_killed: true });
                    }
                    Ok(Some(event)) => bail!("the program of the attack ended: {errors} {}", event.data),
                    Ok(None) => bail!("the program of the attack ended: {errors}"),
                    Err(error) => {
                        return Err(error).with_context(|| format!("the program printed: {errors}"));
                    }
                }
            }
        });
        let not_all = || Held { what: format!("not all after {TAKING:?}"), is_killed: false };
        let held = begun.await.unwrap_or_else(|_| Ok(not_all()))?;
        self.programs.push(events);
        Ok(held)
    }

    /// Ends everything. Its sandboxes must be terminated without an error.
    pub async fn end(mut self) -> Result<()> {
        self.tasks.shutdown().await;
        self.programs.clear();
        for id in std::mem::take(&mut self.sandboxes) {
            let path = format!("{SANDBOXES}/{id}");
            self.client.delete(&path).await?.is(200).context("terminating the attacker's sandbox")?;
        }
        Ok(())
    }
}

/// Whether the limits of its own sandbox ended the program. Under gVisor they may end the kernel inside, so that the agent fails.
fn is_killed(event: &Event) -> bool {
    event.name == "error" || (event.name == "done" && event.data.contains("\"SIGKILL\""))
}

/// What several sandboxes took: that of the first, and how many there are.
fn summary(held: &[Held]) -> Held {
    let what = match held {
        [] => String::new(),
        [one] => one.what.clone(),
        [first, ..] => format!("{} sandboxes, the first: {}", held.len(), first.what),
    };
    Held { what, is_killed: held.iter().any(|held| held.is_killed) }
}
