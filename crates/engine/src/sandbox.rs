//! Operations on one sandbox on behalf of one account. Those on its detached executions are in `detached`.

mod detached;
pub mod external_execution;
mod processes;

use std::sync::Arc;

use api::{EventKind, ExecuteRequest, NetworkPolicy, RunId, SandboxId, SandboxState, SnapshotId};
use driver::SnapshotScope;
use rules::{
    AutoResume, ExposeRequest, ForkRequest, NetworkChange, Operation, PortRefusal, SampleQuery,
    SnapshotRequest, TimeMs,
};
use serde_json::Value;
use store::{ExposedPort, NewEvent, SandboxRecord, SnapshotRecord};
use tokio::time::Instant;

use crate::actor::ON_REQUEST;
use crate::background::resource_samples::ResourceSample;
use crate::create::fork;
use crate::error::{DaemonError, EngineError, SandboxError, SnapshotError};
use crate::host::guest;
use crate::link::Tunnel;
use crate::object_store;
use crate::record::expiry_warnings::ExpiryWarnings;
use crate::record::exposure::find_port;
use crate::record::idempotency::PendingIdempotencyRecord;
use crate::record::status::{PauseResult, ResumeResult, Status, TerminateResult};
use crate::registry::mailbox::{
    ActorHandle, ActorRequest, Admission, Permit, Processes, Reply, TimeoutChange,
};
use crate::services::Services;
use crate::snapshots::take::{self, PendingSnapshot};
use crate::work::execution::{self, Execution};
use crate::work::files::user_files::UserFileOp;
use crate::work::files::watch::Watch;
use crate::work::files::{self, FileOp, FileOperation};

/// Exists in each sandbox.
const ROOT: &str = "root";

/// A sandbox as one account addresses it. The account and the sandbox's existence are checked by each operation.
#[derive(Clone, Copy)]
pub struct SandboxHandle<'a> {
    pub(crate) services: &'a Arc<Services>,
    pub(crate) account: &'a str,
    pub(crate) id: &'a SandboxId,
}

impl<'a> SandboxHandle<'a> {
    pub(crate) fn new(services: &'a Arc<Services>, account: &'a str, id: &'a SandboxId) -> Self {
        Self { services, account, id }
    }

    /// The last published status.
    pub async fn status(self) -> Result<Status, EngineError> {
        let status = self.actor().await?.status.borrow().clone();
        if status.state() == SandboxState::Terminated {
            return Err(self.not_found().await);
        }
        Ok(status)
    }

    pub async fn pause(self) -> Result<PauseResult, EngineError> {
        self.pause_with(Processes::Kept).await
    }

    /// Pauses the sandbox, and keeps or ends its processes.
    pub async fn pause_with(self, processes: Processes) -> Result<PauseResult, EngineError> {
        self.request(|reply| ActorRequest::Pause { reason: ON_REQUEST, processes, reply }).await
    }

    pub async fn resume(self) -> Result<ResumeResult, EngineError> {
        self.resume_with(Processes::Kept).await
    }

    /// Resumes the sandbox, with its processes or, on its disk, without them.
    pub async fn resume_with(self, processes: Processes) -> Result<ResumeResult, EngineError> {
        self.request(|reply| ActorRequest::Resume { processes, reply }).await
    }

    /// Takes a snapshot of the disk. The sandbox stays as it is. If the caller stops waiting, the snapshot is completed.
    pub async fn take_snapshot(
        self,
        request: SnapshotRequest,
        idempotency: Option<PendingSnapshot>,
    ) -> Result<Arc<SnapshotRecord>, EngineError> {
        let actor = self.actor().await?;
        let services = Arc::clone(self.services);
        let taking = async move { take::take(&services.taking(), &actor, request, idempotency).await };
        self.run_to_completion(taking).await
    }

    /// Takes a snapshot that only the caller sees, and finds again by the key ([`crate::Engine::find_internal_snapshot`]). If it stops
    /// waiting, the snapshot is completed.
    pub async fn take_internal_snapshot(
        self,
        origin_key: String,
        scope: SnapshotScope,
    ) -> Result<Arc<SnapshotRecord>, EngineError> {
        let actor = self.actor().await?;
        let services = Arc::clone(self.services);
        let taking = async move { take::take_internal(&services.taking(), &actor, origin_key, scope).await };
        self.run_to_completion(taking).await
    }

    /// Replaces the disk by that of a snapshot of this sandbox. All its processes end, and it runs afterwards.
    pub async fn rollback(self, snapshot: &SnapshotId) -> Result<Status, EngineError> {
        let actor = self.actor().await?;
        let (template, snapshot) = object_store::template(self.services, self.account, snapshot).await?;
        let hold = template.hold;
        if snapshot.sandbox != *self.id {
            let (id, sandbox) = (snapshot.id.clone(), snapshot.sandbox.clone());
            return Err(SnapshotError::Foreign { id, sandbox }.into());
        }
        let rolled_back = actor.request(|reply| ActorRequest::Rollback { snapshot, hold, reply }).await;
        self.explain_not_found(rolled_back).await
    }

    /// Creates sandboxes above a copy of the disk, all or none. If the caller stops waiting, the fork is completed.
    pub async fn fork(
        self,
        request: ForkRequest,
        idempotency: Option<PendingIdempotencyRecord<Vec<SandboxRecord>>>,
    ) -> Result<Vec<Status>, EngineError> {
        let actor = self.actor().await?;
        let services = Arc::clone(self.services);
        let forking = async move { fork::fork(&services, &actor, request, idempotency).await };
        self.run_to_completion(forking).await
    }

    pub(crate) async fn run_to_completion<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        if self.services.tasks.is_stopping() {
            return Err(DaemonError::Stopping.into());
        }
        let done = self.services.tasks.spawn(work).await.map_err(|_| DaemonError::TaskLost)?;
        self.explain_not_found(done).await
    }

    /// Kills all processes of the sandbox, then returns. The rest of it is removed in the background.
    pub async fn terminate(self, reason: &str) -> Result<TerminateResult, EngineError> {
        let reason = reason.to_owned();
        self.request(|reply| ActorRequest::Terminate { reason, reply }).await
    }

    /// Runs a command and returns a stream of its output.
    pub async fn execute(self, request: ExecuteRequest) -> Result<Execution, EngineError> {
        let actor = self.actor().await?;
        let services = self.services;
        let (begun, isolation) = (Instant::now(), actor.status.borrow().record.config.isolation);
        let started = execution::start(&actor, &services.host, &services.stamped_store, request).await;
        if started.is_ok() {
            services.counters.latencies.of(isolation).execute.observe(begun.elapsed());
        }
        self.explain_not_found(started).await
    }

    /// Starts a file operation. A paused sandbox is resumed for it if `auto_resume` allows.
    pub async fn file_op(self, auto_resume: AutoResume, op: &FileOp) -> Result<FileOperation, EngineError> {
        let actor = self.actor().await?;
        if op.writes() {
            let checked = self.services.ledger.check_disk().map_err(EngineError::from);
            checked.inspect_err(|error| error.count_refusal(&self.services.counters))?;
        }
        let started = files::start(&actor, auto_resume, op).await;
        self.explain_not_found(started).await
    }

    /// Starts a file operation on behalf of a user of the sandbox.
    pub async fn user_file_op(
        self,
        auto_resume: AutoResume,
        user: &str,
        op: &UserFileOp,
    ) -> Result<FileOperation, EngineError> {
        let actor = self.actor().await?;
        if op.writes() {
            let checked = self.services.ledger.check_disk().map_err(EngineError::from);
            checked.inspect_err(|error| error.count_refusal(&self.services.counters))?;
        }
        let started = files::start_for_user(&actor, auto_resume, user, op).await;
        self.explain_not_found(started).await
    }

    /// Watches a directory, on request with all directories below it, and returns when the watch is active. The sandbox counts as
    /// active while the watch exists. Relative paths begin at the user's home.
    pub async fn watch(
        self,
        auto_resume: AutoResume,
        user: &str,
        path: &[u8],
        recursive: bool,
    ) -> Result<Watch, EngineError> {
        let op = UserFileOp::Watch { path: path.to_vec(), recursive };
        Watch::begin(self.user_file_op(auto_resume, user, &op).await?).await
    }

    /// Like [`SandboxHandle::watch`], with relative paths below the working directory of the sandbox. Returns the absolute path too.
    pub async fn watch_below_workdir(
        self,
        auto_resume: AutoResume,
        path: &[u8],
        recursive: bool,
    ) -> Result<(Watch, Vec<u8>), EngineError> {
        let status = self.status().await?;
        let path = files::absolute(status.record.config.workdir.as_bytes(), path).into_owned();
        Ok((self.watch(auto_resume, ROOT, &path, recursive).await?, path))
    }

    /// Connects to a TCP port inside. The sandbox is not paused for idleness while the permit exists.
    pub async fn dial(self, port: u16) -> Result<(Tunnel, Permit), EngineError> {
        let admission = self.enter(Operation::Ports { auto_resume: AutoResume::Allowed }).await?;
        Ok((admission.dial(port).await?, admission.permit))
    }

    /// The network policy of the sandbox, and its traffic so far.
    pub async fn network(self) -> Result<(NetworkPolicy, net::Usage), EngineError> {
        let status = self.status().await?;
        let usage = self.services.host.network().usage(&guest(&status.record)).await;
        Ok((status.record.config.network.clone(), usage))
    }

    /// Changes the network policy. The policy is enforced and recorded when this returns, also of a paused sandbox.
    pub async fn change_network(self, change: NetworkChange) -> Result<Status, EngineError> {
        self.request(|reply| ActorRequest::Network { change, reply }).await
    }

    /// What the sandbox has used lately, oldest first, and its status.
    pub async fn resource_samples(
        self,
        query: SampleQuery,
    ) -> Result<(Status, Vec<ResourceSample>), EngineError> {
        let status = self.status().await?;
        let samples = self.services.resource_samples.of(self.id, query);
        Ok((status, samples))
    }

    /// The warnings that a client of a terminal gets before the timeout.
    pub async fn expiry_warnings(self) -> Result<ExpiryWarnings, EngineError> {
        Ok(ExpiryWarnings::new(self.actor().await?.status, self.services.stamped_store.clock()))
    }

    /// Changes the timeout, which then counts from now, or from the resume of a paused sandbox.
    pub async fn change_timeout(self, change: TimeoutChange) -> Result<Status, EngineError> {
        self.request(|reply| ActorRequest::Timeout { change, reply }).await
    }

    /// Exposes a port to the outside. Exposing a port again invalidates its earlier tokens and connections.
    pub async fn expose(
        self,
        request: ExposeRequest,
        run: Option<RunId>,
    ) -> Result<ExposedPort, EngineError> {
        self.request(|reply| ActorRequest::Expose { request, run, reply }).await
    }

    /// Closes an exposed port and its connections.
    pub async fn close_port(self, port: u16, run: Option<RunId>) -> Result<TimeMs, EngineError> {
        self.request(|reply| ActorRequest::ClosePort { port, run, reply }).await
    }

    /// The exposed ports.
    pub async fn ports(self) -> Result<Vec<ExposedPort>, EngineError> {
        Ok(self.status().await?.record.ports.clone())
    }

    /// One exposed port.
    pub async fn port(self, port: u16) -> Result<ExposedPort, EngineError> {
        let status = self.status().await?;
        find_port(&status.record, port).cloned().ok_or(PortRefusal::NotExposed { port }.into())
    }

    /// Appends an event to the event journal without waiting for the disk. It survives a crash of the daemon and becomes
    /// visible a moment later. The sandbox's existence is not checked.
    pub fn append_event(self, run: Option<&RunId>, kind: EventKind, data: Value) {
        self.services.stamped_store.append(NewEvent {
            sandbox: self.id.clone(),
            account: self.account.to_owned(),
            run: run.map(RunId::as_str).unwrap_or_default().to_owned(),
            at: self.services.stamped_store.now(),
            kind,
            data,
            once: None,
        });
    }

    /// Counts a request that is refused before it reaches the engine as activity of the sandbox. Does not wait; ignored if the
    /// account has no such sandbox.
    pub fn touch(self) {
        if let Some(actor) = self.services.registry.find(self.id)
            && actor.status.borrow().record.account == self.account
        {
            // A full mailbox holds requests, which count as activity as well.
            let _ = actor.requests.try_send(ActorRequest::Touch);
        }
    }

    pub(crate) async fn enter(self, operation: Operation) -> Result<Admission, EngineError> {
        self.request(|reply| ActorRequest::Enter { operation, reply }).await
    }

    /// Sends a request to the sandbox's actor and waits for its answer.
    async fn request<T>(self, request: impl FnOnce(Reply<T>) -> ActorRequest) -> Result<T, EngineError> {
        let answer = self.actor().await?.request(request).await;
        self.explain_not_found(answer).await
    }

    /// The sandbox's actor, if the sandbox belongs to the account.
    pub(crate) async fn actor(self) -> Result<ActorHandle, EngineError> {
        match self.services.registry.find(self.id) {
            Some(actor) if actor.status.borrow().record.account == self.account => Ok(actor),
            Some(_) => Err(EngineError::Sandbox(SandboxError::NotFound { terminated: None })),
            None => Err(self.not_found().await),
        }
    }

    /// The error for a sandbox without an actor. Only the owner learns when and why the sandbox ended.
    async fn not_found(self) -> EngineError {
        if self.services.tasks.is_stopping() {
            // A stopping engine has emptied its registry although the sandboxes keep running.
            return EngineError::Daemon(DaemonError::Stopping);
        }
        let record = match self.services.stamped_store.store().get_for(self.account, self.id).await {
            Ok(record) => record,
            Err(error) => return error.into(),
        };
        let terminated = record
            .filter(|record| record.account == self.account)
            .and_then(|record| record.lifecycle.end().map(|(at, reason)| (at, reason.to_owned())));
        EngineError::Sandbox(SandboxError::NotFound { terminated })
    }

    /// Adds when and why the sandbox ended to the error of a request during which it ended.
    pub(crate) async fn explain_not_found<T>(self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        match result {
            Err(EngineError::Sandbox(
                SandboxError::NotFound { .. } | SandboxError::Refused(rules::OperationRefusal::NotFound),
            )) => Err(self.not_found().await),
            result => result,
        }
    }
}
