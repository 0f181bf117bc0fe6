//! The engine as the layers above see it.

mod detached;

use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, ExecuteRequest, NetworkPolicy, RunId, SandboxConfig, SandboxId, SandboxState};
use driver::Driver;
use net::Network;
use rules::{AutoResume, Capacity, NetworkChange, Operation, Usage};
use serde_json::Value;
use store::{NewEvent, Store};
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::create::{self, Remember};
use crate::error::EngineError;
use crate::execution::{self, Execution};
use crate::facts::{self, Facts};
use crate::files::{self, FileOrder, FileWork};
use crate::handle::{Handle, Permit, Request};
use crate::link::Tunnel;
use crate::recover::{Recovered, recover};
use crate::settings::{EngineSettings, Template};
use crate::shared::{FindImage, Shared};
use crate::shelves::PoolState;
use crate::status::{PauseResult, ResumeResult, Status, TerminateResult};
use crate::{network, pool, purge, refusals};

pub(crate) const DIAL_PATIENCE: Duration = Duration::from_secs(10);

/// What an engine stands on.
pub struct Parts {
    pub driver: Arc<dyn Driver>,
    pub store: Arc<dyn Store>,
    pub network: Arc<dyn Network>,
    /// What the network refused to sandboxes; nothing where it cannot tell.
    pub refusals: Option<mpsc::Receiver<net::Refusal>>,
    pub find_image: FindImage,
    pub clock: Clock,
}

/// All sandboxes of this host. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

impl Engine {
    /// Finds what there is, mends what has to be, and is then ready.
    pub async fn open(parts: Parts, settings: EngineSettings) -> Result<(Self, Recovered), EngineError> {
        let Parts { driver, store, network, refusals, find_image, clock } = parts;
        let shared = Arc::new(Shared::new(driver, store, network, find_image, clock, settings));
        let recovered = recover(&shared).await?;
        if let Some(refusals) = refusals {
            refusals::start(&shared, refusals);
        }
        pool::start(&shared);
        purge::start(&shared);
        Ok((Self { shared }, recovered))
    }

    /// Makes a sandbox. Goes on to its end when the caller stops waiting: the sandbox is then listed as any other.
    ///
    /// With `remember` its answer is kept in the commit of its record. Where an answer is kept under that key already there
    /// is no sandbox, and the error is [`store::StoreError::AlreadyRemembered`].
    pub async fn create(
        &self,
        account: &str,
        config: SandboxConfig,
        template: Template,
        remember: Option<Remember>,
    ) -> Result<Status, EngineError> {
        if self.shared.stopping.is_cancelled() {
            return Err(EngineError::Stopping);
        }
        let (shared, account) = (Arc::clone(&self.shared), account.to_owned());
        let creating = async move { create::create(&shared, account, config, template, remember).await };
        self.shared.tasks.spawn(creating).await.map_err(|_| EngineError::TaskLost)?
    }

    /// The sandbox as last published.
    pub async fn get(&self, account: &str, id: &SandboxId) -> Result<Status, EngineError> {
        let status = self.find(account, id).await?.status.borrow().clone();
        if status.state() == SandboxState::Terminated {
            return Err(self.why_not_found(account, id).await);
        }
        Ok(status)
    }

    pub async fn pause(&self, account: &str, id: &SandboxId) -> Result<PauseResult, EngineError> {
        let asked = self.find(account, id).await?.ask(|reply| Request::Pause { reply }).await;
        self.or_why_it_ended(account, id, asked).await
    }

    pub async fn resume(&self, account: &str, id: &SandboxId) -> Result<ResumeResult, EngineError> {
        let asked = self.find(account, id).await?.ask(|reply| Request::Resume { reply }).await;
        self.or_why_it_ended(account, id, asked).await
    }

    /// Answers when no process of the sandbox runs any more; what else there is of it goes within moments.
    pub async fn terminate(
        &self,
        account: &str,
        id: &SandboxId,
        reason: &str,
    ) -> Result<TerminateResult, EngineError> {
        let reason = reason.to_owned();
        let asked = self.find(account, id).await?.ask(|reply| Request::Terminate { reason, reply }).await;
        self.or_why_it_ended(account, id, asked).await
    }

    /// Gives a sandbox another network policy, which is in force and recorded when this answers. Of one that is paused too.
    pub async fn change_network(
        &self,
        account: &str,
        id: &SandboxId,
        change: NetworkChange,
    ) -> Result<Status, EngineError> {
        let asked = self.find(account, id).await?.ask(|reply| Request::Network { change, reply }).await;
        self.or_why_it_ended(account, id, asked).await
    }

    /// The network policy of a sandbox, and what it sent and received.
    pub async fn network(
        &self,
        account: &str,
        id: &SandboxId,
    ) -> Result<(NetworkPolicy, net::Usage), EngineError> {
        let status = self.get(account, id).await?;
        let usage = self.shared.network.usage(&network::guest(&status.record));
        Ok((status.record.config.network.clone(), usage))
    }

    pub async fn execute(
        &self,
        account: &str,
        id: &SandboxId,
        request: ExecuteRequest,
    ) -> Result<Execution, EngineError> {
        let handle = self.find(account, id).await?;
        let started = execution::start(&handle, &self.shared, request).await;
        self.or_why_it_ended(account, id, started).await
    }

    /// Begins work among the files of a sandbox, which is resumed for it if it may be.
    pub async fn file(
        &self,
        account: &str,
        id: &SandboxId,
        auto_resume: bool,
        order: &FileOrder,
    ) -> Result<FileWork, EngineError> {
        let handle = self.find(account, id).await?;
        let begun = files::start(&handle, auto_resume, order).await;
        self.or_why_it_ended(account, id, begun).await
    }

    /// Records that something happened to a sandbox, without waiting for the disk: it outlives the daemon, and is seen some
    /// moments later. For what is done in sandboxes on behalf of their owners; nothing is looked at here.
    pub fn note_event(
        &self,
        account: &str,
        id: &SandboxId,
        run: Option<&RunId>,
        kind: EventKind,
        data: Value,
    ) {
        let event = NewEvent {
            sandbox: id.clone(),
            account: account.to_owned(),
            run: run.map(RunId::as_str).unwrap_or_default().to_owned(),
            at: self.shared.clock.now(),
            kind: kind.to_string(),
            data,
            once: None,
        };
        self.shared.note(event);
    }

    /// Connects to a TCP port inside. The permit holds the sandbox awake for as long as it is kept.
    pub async fn dial(
        &self,
        account: &str,
        id: &SandboxId,
        port: u16,
    ) -> Result<(Tunnel, Permit), EngineError> {
        let operation = Operation::Ports { auto_resume: AutoResume::Allowed };
        let asked = self.find(account, id).await?.ask(|reply| Request::Enter { operation, reply }).await;
        let entry = self.or_why_it_ended(account, id, asked).await?;
        Ok((entry.agent.dial(port, DIAL_PATIENCE).await?, entry.permit))
    }

    /// What may be given away, and what is.
    pub fn capacity(&self) -> (Capacity, Usage) {
        (self.shared.ledger.capacity(), self.shared.ledger.used())
    }

    pub fn pool(&self) -> Vec<PoolState> {
        self.shared.shelves.state()
    }

    /// Sandboxes that are not terminated.
    pub fn living(&self) -> usize {
        self.shared.count()
    }

    /// What there is and what happened, for metrics. Cheap: a look at what each sandbox published.
    pub fn facts(&self) -> Facts {
        facts::look(&self.shared)
    }

    /// Counts as a request to the sandbox (decision 4), for requests that are refused before they get here. Waits for
    /// nothing; a sandbox that is not there, or another account's, is passed over.
    pub fn touch(&self, account: &str, id: &SandboxId) {
        if let Some(handle) = self.shared.find(id)
            && handle.status.borrow().record.account == account
        {
            // A mailbox that is full holds requests that count as well.
            let _ = handle.requests.try_send(Request::Touch);
        }
    }

    /// Something comes on a connection that was open before: a sandbox that was paused meanwhile is resumed for it, as for a new
    /// one. Waits for nothing, and costs nothing where it is awake; what comes of it is seen on the connection.
    pub fn rouse(&self, id: &SandboxId) {
        if let Some(handle) = self.shared.find(id)
            && handle.status.borrow().record.state == SandboxState::Paused
        {
            let operation = Operation::Ports { auto_resume: AutoResume::Allowed };
            let (reply, _) = oneshot::channel();
            let _ = handle.requests.try_send(Request::Enter { operation, reply });
        }
    }

    /// Takes no more work, empties the pool and finishes removals. Sandboxes live on.
    pub async fn shutdown(&self) {
        self.shared.stopping.cancel();
        self.shared.unregister_all();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        pool::drain(&self.shared).await;
        self.shared.store.close().await;
    }

    pub(crate) async fn find(&self, account: &str, id: &SandboxId) -> Result<Handle, EngineError> {
        match self.shared.find(id) {
            Some(handle) if handle.status.borrow().record.account == account => Ok(handle),
            Some(_) => Err(EngineError::NotFound { terminated: None }),
            None => Err(self.why_not_found(account, id).await),
        }
    }

    /// Its owner is told when and why a sandbox ended; to others it never was.
    async fn why_not_found(&self, account: &str, id: &SandboxId) -> EngineError {
        if self.shared.stopping.is_cancelled() {
            // The registry is empty by now, and says nothing of what lives on.
            return EngineError::Stopping;
        }
        let record = match self.shared.store.get(id).await {
            Ok(record) => record,
            Err(error) => return error.into(),
        };
        let terminated = record
            .filter(|record| record.account == account)
            .and_then(|record| Some((record.terminated_at?, record.reason.unwrap_or_default())));
        EngineError::NotFound { terminated }
    }

    /// A sandbox may end while a request waits for it.
    pub(crate) async fn or_why_it_ended<T>(
        &self,
        account: &str,
        id: &SandboxId,
        result: Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match result {
            Err(EngineError::NotFound { .. } | EngineError::Refused(rules::Refusal::NotFound)) => {
                Err(self.why_not_found(account, id).await)
            }
            result => result,
        }
    }
}
