//! The executions of every sandbox: found again on disk by a start, and looked up by the rest.
//!
//! ```text
//! DIR/SANDBOX/EXECUTION/   record.json, log.…, and stdin while some of it is left to feed
//! ```
//!
//! A directory of a sandbox that is not there any more is removed, and one without a record: it never began.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use api::SandboxId;
use tokio::sync::watch;

use super::execution::{DetachedExecution, WriterInbox};
use super::log::Log;
use super::record::Record;
use crate::detached::status::{ExecutionId, ExecutionStatus};
use crate::error::EngineError;
use crate::link::Agent;
use crate::settings::DetachedSettings;

/// How the agent of a sandbox is reached.
#[derive(Clone)]
pub enum AgentAvailability {
    /// Not now.
    Waiting,
    Linked(Agent),
    /// The sandbox's processes are gone.
    Gone,
    /// The sandbox is.
    Terminated,
}

impl AgentAvailability {
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Linked(agent), Self::Linked(other)) => agent.is(other),
            (Self::Waiting, Self::Waiting) | (Self::Gone, Self::Gone) => true,
            // After the end of the sandbox there is nothing new.
            (Self::Terminated, _) => true,
            _ => false,
        }
    }
}

/// Those of one sandbox.
pub struct SandboxExecutions {
    pub dir: PathBuf,
    pub agent: watch::Sender<AgentAvailability>,
    list: Mutex<BTreeMap<ExecutionId, Arc<DetachedExecution>>>,
    /// One is started at a time, and what is too old is removed before it.
    pub starting: tokio::sync::Mutex<()>,
    /// RecoveredExecution running, and without a keeper yet.
    found: Mutex<Vec<RecoveredExecution>>,
}

/// An execution that another daemon left.
pub struct RecoveredExecution {
    pub execution: Arc<DetachedExecution>,
    pub log: Log,
    pub inbox: WriterInbox,
}

/// Those of all sandboxes.
pub struct ExecutionRegistry {
    pub settings: DetachedSettings,
    sandboxes: RwLock<HashMap<SandboxId, Arc<SandboxExecutions>>>,
}

impl ExecutionRegistry {
    pub fn new(settings: DetachedSettings) -> Self {
        Self { settings, sandboxes: RwLock::default() }
    }

    /// Reads what is there of the sandboxes that are, and removes the rest. Blocking.
    pub fn recover(&self, known: &HashSet<SandboxId>) -> io::Result<()> {
        for (name, dir) in dirs(&self.settings.dir)? {
            match name.parse::<SandboxId>().ok().filter(|id| known.contains(id)) {
                Some(id) => {
                    let executions = SandboxExecutions::read(&dir, self.settings.log_bytes)?;
                    self.sandboxes
                        .write()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(id, Arc::new(executions));
                }
                None => remove_tree(&dir)?,
            }
        }
        Ok(())
    }

    pub fn of(&self, id: &SandboxId) -> Arc<SandboxExecutions> {
        let mut sandboxes = self.sandboxes.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(SandboxExecutions::new(self.settings.dir.join(id.as_str())));
        Arc::clone(sandboxes.entry(id.clone()).or_insert_with(new))
    }

    /// The agent's numbers of what runs in a sandbox.
    pub fn running(&self, id: &SandboxId) -> Vec<u64> {
        let sandboxes = self.sandboxes.read().unwrap_or_else(PoisonError::into_inner);
        sandboxes.get(id).map(|executions| executions.running()).unwrap_or_default()
    }

    /// Forgets those of a sandbox that is over, and removes what is on disk. Blocking.
    pub fn remove(&self, id: &SandboxId) -> io::Result<()> {
        self.sandboxes.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        remove_tree(&self.settings.dir.join(id.as_str()))
    }
}

impl SandboxExecutions {
    fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            agent: watch::Sender::new(AgentAvailability::Waiting),
            list: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            found: Mutex::default(),
        }
    }

    fn read(dir: &Path, log_bytes: u64) -> io::Result<Self> {
        let executions = Self::new(dir.to_owned());
        for (_, dir) in dirs(dir)? {
            let Some(record) = Record::read(&dir) else {
                remove_tree(&dir)?;
                continue;
            };
            let log = match Log::open(&dir, log_bytes) {
                Ok(log) => log,
                Err(error) => {
                    // One that cannot be read does not keep the others from being.
                    tracing::error!(dir = %dir.display(), %error, "could not read the log of an execution");
                    continue;
                }
            };
            let (execution, inbox) = DetachedExecution::new(record, dir, &log);
            executions.add(&execution);
            if log.state().end.is_none() || !log.state().is_end_event_recorded {
                let found = RecoveredExecution { execution, log, inbox };
                executions.found.lock().unwrap_or_else(PoisonError::into_inner).push(found);
            }
        }
        Ok(executions)
    }

    /// What was found running, once.
    pub fn take_recovered(&self) -> Vec<RecoveredExecution> {
        std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<ExecutionId, Arc<DetachedExecution>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, execution: &Arc<DetachedExecution>) {
        self.list().insert(execution.record.id.clone(), Arc::clone(execution));
    }

    pub fn find(&self, id: &ExecutionId) -> Result<Arc<DetachedExecution>, EngineError> {
        self.list().get(id).cloned().ok_or_else(|| EngineError::NoSuchExecution { id: id.clone() })
    }

    /// Those whose end is not noted.
    pub fn without_end_event(&self) -> Vec<Arc<DetachedExecution>> {
        let list = self.list();
        list.values()
            .filter(|execution| !execution.progress.borrow().log.is_end_event_recorded)
            .cloned()
            .collect()
    }

    /// Newest first.
    pub fn statuses(&self) -> Vec<ExecutionStatus> {
        let mut statuses: Vec<_> = self.list().values().map(|execution| execution.status()).collect();
        statuses.sort_by(|a, b| (b.started_at, &b.id).cmp(&(a.started_at, &a.id)));
        statuses
    }

    fn running(&self) -> Vec<u64> {
        let list = self.list();
        list.values()
            .filter(|execution| execution.is_running())
            .map(|execution| execution.record.op)
            .collect()
    }

    /// Takes out the oldest finished ones that are too many or have printed too much; their directories are to be removed.
    pub fn prune(&self, settings: &DetachedSettings) -> Vec<PathBuf> {
        let mut list = self.list();
        let mut finished: Vec<_> = list
            .values()
            .filter(|execution| !execution.is_running())
            .map(|execution| {
                let size = execution.progress.borrow().bytes + execution.record.bytes();
                (execution.record.started_at_ms, execution.record.id.clone(), size)
            })
            .collect();
        finished.sort_unstable();
        let sizes: Vec<u64> = finished.iter().map(|(.., size)| *size).collect();
        let too_many = rules::executions_to_drop(&sizes, settings.kept, settings.total_bytes);
        let gone = finished.into_iter().take(too_many);
        gone.filter_map(|(_, id, _)| list.remove(&id)).map(|execution| execution.dir.clone()).collect()
    }
}

/// The directories below one, by name; none where that is not there.
fn dirs(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
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

pub fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
