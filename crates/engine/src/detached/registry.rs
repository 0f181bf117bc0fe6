//! The registry of detached executions: recovered from disk at the start of the daemon, looked up by sandbox and id.
//!
//! ```text
//! DIR/SANDBOX/EXECUTION/   record.json, log.NUMBER, and stdin while a part of it has not been sent
//! DIR/SNAPSHOT/EXECUTION/  see `stored`
//! ```
//!
//! The recovery removes directories of unknown sandboxes, and directories without a record: their executions were never started.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use api::{SandboxId, SnapshotId};
use base::{IgnorePoison, blocking};
use rules::TimeMs;
use store::{NewEvent, SandboxRecord};
use tokio::sync::{MutexGuard as AsyncMutexGuard, watch};

use super::events;
use super::execution::{DetachedExecution, WriterInbox};
use super::log::Log;
use super::record::Record;
use crate::detached::status::{ExecutionId, ExecutionStatus};
use crate::error::{EngineError, ExecutionError};
use crate::host::Host;
use crate::link::Agent;
use crate::record::stamped_store::StampedStore;
use crate::registry::SandboxRegistry;
use crate::tasks::Tasks;

/// Ends the names of directories of staged executions.
pub(super) const STAGED: &str = ".next";

/// Where detached executions are stored, and how much of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedSettings {
    /// A directory that only the engine uses, with a directory for each sandbox and below it one for each execution.
    pub dir: PathBuf,
    /// The maximum size of the log of one execution, at least 1 MiB. Beyond it the oldest output is dropped, or the command waits for
    /// its readers.
    pub log_bytes: u64,
    /// The maximum number and total size of the finished executions of one sandbox. The oldest are dropped first.
    pub max_ended: u32,
    pub total_bytes: u64,
}

impl DetachedSettings {
    /// The defaults.
    pub fn in_dir(dir: PathBuf) -> Self {
        Self { dir, log_bytes: 16 << 20, max_ended: 100, total_bytes: 64 << 20 }
    }
}

/// Whether the agent of a sandbox can be reached.
#[derive(Clone)]
pub enum AgentAvailability {
    /// There is no link now.
    Waiting,
    Linked(Agent),
    /// The sandbox has no processes.
    ProcessesGone,
    SandboxTerminated,
}

impl AgentAvailability {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Linked(agent), Self::Linked(other)) => agent.is(other),
            (Self::Waiting, Self::Waiting) | (Self::ProcessesGone, Self::ProcessesGone) => true,
            // A termination is final.
            (Self::SandboxTerminated, _) => true,
            _ => false,
        }
    }
}

/// What log writers and starts of executions share.
pub(super) struct Context {
    pub settings: DetachedSettings,
    pub host: Arc<Host>,
    pub stamped_store: StampedStore,
    pub tasks: Tasks,
}

/// The executions of all sandboxes.
pub struct ExecutionRegistry {
    pub(super) context: Arc<Context>,
    sandboxes: RwLock<HashMap<SandboxId, Arc<SandboxExecutions>>>,
}

/// The executions of one sandbox.
pub struct SandboxExecutions {
    pub(super) context: Arc<Context>,
    pub(super) dir: PathBuf,
    agent: watch::Sender<AgentAvailability>,
    list: Mutex<BTreeMap<ExecutionId, Arc<DetachedExecution>>>,
    /// Serializes starts, so that each start removes old executions first.
    starting: tokio::sync::Mutex<()>,
    /// Unfinished executions of an earlier daemon that have no log writer yet.
    pub(super) recovered: Mutex<Vec<RecoveredExecution>>,
}

pub(super) struct RecoveredExecution {
    pub execution: Arc<DetachedExecution>,
    pub log: Log,
    pub inbox: WriterInbox,
}

impl ExecutionRegistry {
    pub fn new(
        settings: DetachedSettings,
        host: Arc<Host>,
        stamped_store: StampedStore,
        tasks: Tasks,
    ) -> Self {
        let context = Arc::new(Context { settings, host, stamped_store, tasks });
        Self { context, sandboxes: RwLock::default() }
    }

    /// Reads the executions of the known sandboxes from disk, and removes all others. The known sandboxes have a prepared disk or not.
    pub async fn recover(self: &Arc<Self>, known: HashMap<SandboxId, bool>) -> Result<(), EngineError> {
        let registry = Arc::clone(self);
        blocking(move || Ok(registry.read(&known)?)).await
    }

    fn read(&self, known: &HashMap<SandboxId, bool>) -> io::Result<()> {
        let mut staged = Vec::new();
        for (name, dir) in dirs(&self.context.settings.dir)? {
            if name.parse::<SnapshotId>().is_ok() {
                // The sweeper removes those that are superfluous.
                continue;
            }
            if let Some(id) = name.strip_suffix(STAGED).and_then(|name| name.parse().ok())
                && known.get(&id) == Some(&true)
            {
                staged.push((id, dir));
                continue;
            }
            match name.parse::<SandboxId>().ok().filter(|id| known.contains_key(id)) {
                Some(id) => {
                    let executions = SandboxExecutions::read(&self.context, &dir)?;
                    self.sandboxes.write().ignore_poison().insert(id, Arc::new(executions));
                }
                None => remove_tree(&dir)?,
            }
        }
        // A crash came between the commit of a rollback and its end.
        for (id, dir) in staged {
            let executions = self.of(&id);
            executions.end_recovered(self.context.stamped_store.now())?;
            executions.adopt_staged(&dir)?;
        }
        Ok(())
    }

    pub fn of(&self, id: &SandboxId) -> Arc<SandboxExecutions> {
        let mut sandboxes = self.sandboxes.write().ignore_poison();
        let new = || {
            let dir = self.context.settings.dir.join(id.as_str());
            Arc::new(SandboxExecutions::new(&self.context, dir))
        };
        Arc::clone(sandboxes.entry(id.clone()).or_insert_with(new))
    }

    /// Bytes on disk of the executions of an account's sandboxes.
    pub fn account_bytes(&self, registry: &SandboxRegistry, account: &str) -> u64 {
        let sandboxes = self.sandboxes.read().ignore_poison();
        let own = registry.records().into_iter().filter(|record| record.account == account);
        own.filter_map(|record| sandboxes.get(&record.id).map(|executions| executions.bytes())).sum()
    }

    /// Forgets the executions of a terminated sandbox, and removes them from disk.
    pub async fn remove(self: &Arc<Self>, id: SandboxId) -> Result<(), EngineError> {
        let registry = Arc::clone(self);
        blocking(move || {
            registry.sandboxes.write().ignore_poison().remove(&id);
            Ok(remove_tree(&registry.context.settings.dir.join(id.as_str()))?)
        })
        .await
    }
}

/// For the sandbox's actor.
impl SandboxExecutions {
    /// Publishes whether the agent can be reached. Log writers wait for it.
    pub fn set_agent(&self, now: AgentAvailability) {
        self.agent.send_if_modified(|agent| {
            let is_new = !agent.is_same(&now);
            if is_new {
                *agent = now;
            }
            is_new
        });
    }

    /// The agent's operation numbers of the running executions.
    pub fn running_ops(&self) -> Vec<u64> {
        let list = self.list();
        list.values()
            .filter(|execution| execution.is_running())
            .map(|execution| execution.record.op)
            .collect()
    }

    /// The end events of all executions that have none yet, for the commit of the sandbox's termination. They cannot be recorded
    /// later, because the executions are removed with the sandbox.
    pub fn final_events(&self, sandbox: &SandboxRecord, now: TimeMs) -> Vec<NewEvent> {
        let list = self.list();
        let without_event =
            list.values().filter(|execution| !execution.progress.borrow().log.is_end_event_recorded);
        events::ended_with_sandbox(sandbox, without_event.map(Arc::as_ref), now)
    }
}

impl SandboxExecutions {
    fn new(context: &Arc<Context>, dir: PathBuf) -> Self {
        Self {
            context: Arc::clone(context),
            dir,
            agent: watch::Sender::new(AgentAvailability::Waiting),
            list: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            recovered: Mutex::default(),
        }
    }

    fn read(context: &Arc<Context>, dir: &Path) -> io::Result<Self> {
        let executions = Self::new(context, dir.to_owned());
        for (_, dir) in dirs(dir)? {
            let Some(record) = Record::read(&dir) else {
                remove_tree(&dir)?;
                continue;
            };
            let recovered = match executions.open(record, dir.clone()) {
                Ok(recovered) => recovered,
                Err(error) => {
                    // A log that cannot be read must not keep the daemon from starting.
                    tracing::error!(dir = %dir.display(), %error, "could not read the log of an execution");
                    continue;
                }
            };
            let state = recovered.log.state();
            if state.end.is_none() || !state.is_end_event_recorded {
                executions.recovered.lock().ignore_poison().push(recovered);
            }
        }
        Ok(executions)
    }

    /// Opens the log of an execution on the disk, and adds it to the list.
    pub(super) fn open(&self, record: Record, dir: PathBuf) -> io::Result<RecoveredExecution> {
        let log = Log::open(&dir, self.context.settings.log_bytes)?;
        let (execution, inbox) = DetachedExecution::new(record, dir, &log);
        self.add(&execution);
        Ok(RecoveredExecution { execution, log, inbox })
    }

    pub(super) fn list(&self) -> MutexGuard<'_, BTreeMap<ExecutionId, Arc<DetachedExecution>>> {
        self.list.lock().ignore_poison()
    }

    pub(super) fn agent(&self) -> watch::Receiver<AgentAvailability> {
        self.agent.subscribe()
    }

    pub(super) fn is_sandbox_terminated(&self) -> bool {
        matches!(*self.agent.borrow(), AgentAvailability::SandboxTerminated)
    }

    pub(super) fn take_recovered(&self) -> Vec<RecoveredExecution> {
        std::mem::take(&mut *self.recovered.lock().ignore_poison())
    }

    pub(super) async fn lock_start(&self) -> AsyncMutexGuard<'_, ()> {
        self.starting.lock().await
    }

    pub(super) fn add(&self, execution: &Arc<DetachedExecution>) {
        self.list().insert(execution.record.id.clone(), Arc::clone(execution));
    }

    pub fn find(&self, id: &ExecutionId) -> Result<Arc<DetachedExecution>, EngineError> {
        self.list()
            .get(id)
            .cloned()
            .ok_or_else(|| EngineError::Execution(ExecutionError::NotFound { id: id.clone() }))
    }

    /// The newest process that fits.
    pub(crate) fn find_newest(
        &self,
        fits: impl Fn(&DetachedExecution) -> bool,
    ) -> Option<Arc<DetachedExecution>> {
        let list = self.list();
        let fitting = list.values().filter(|execution| fits(execution));
        fitting.max_by_key(|execution| (execution.is_running(), execution.record.op)).cloned()
    }

    /// The processes that are running, oldest first.
    pub(crate) fn running_processes(&self) -> Vec<Arc<DetachedExecution>> {
        let list = self.list();
        let is_process = |execution: &&Arc<DetachedExecution>| {
            execution.record.process.is_some() && execution.is_running()
        };
        let mut running: Vec<_> = list.values().filter(is_process).cloned().collect();
        running.sort_by_key(|execution| execution.record.op);
        running
    }

    /// All executions, newest first.
    pub fn statuses(&self) -> Vec<ExecutionStatus> {
        let mut statuses: Vec<_> = self.list().values().map(|execution| execution.status()).collect();
        statuses.sort_by(|a, b| (b.started_at, &b.id).cmp(&(a.started_at, &a.id)));
        statuses
    }

    fn bytes(&self) -> u64 {
        let list = self.list();
        list.values().map(|execution| execution.progress.borrow().bytes + execution.record.bytes()).sum()
    }

    /// Drops the oldest finished executions beyond the limits, but none whose output a client is reading. Returns their directories,
    /// for the caller to remove.
    pub(super) fn prune(&self) -> Vec<PathBuf> {
        let mut list = self.list();
        let mut finished: Vec<_> = list
            .values()
            .filter(|execution| !execution.is_running() && !execution.is_awaited())
            .map(|execution| {
                let size = execution.progress.borrow().bytes + execution.record.bytes();
                (execution.record.started_at_ms, execution.record.id.clone(), size)
            })
            .collect();
        finished.sort_unstable();
        let sizes: Vec<u64> = finished.iter().map(|(.., size)| *size).collect();
        let settings = &self.context.settings;
        let excess = rules::executions_to_drop(&sizes, settings.max_ended, settings.total_bytes);
        let dropped = finished.into_iter().take(excess);
        dropped.filter_map(|(_, id, _)| list.remove(&id)).map(|execution| execution.dir.clone()).collect()
    }
}

/// The subdirectories of a directory with their names; none if the directory does not exist.
pub(super) fn dirs(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut dirs = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            dirs.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    Ok(dirs)
}

/// Removes a directory. Succeeds if it does not exist.
pub(super) fn remove_tree(dir: &Path) -> io::Result<()> {
    base::allow_missing(fs::remove_dir_all(dir))
}
