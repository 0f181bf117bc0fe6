//! Watchers: watches that clients read by polling.
//!
//! A watcher belongs to a sandbox and ends with it, when it is removed, or when nobody has asked for its events for
//! [`IDLE_TIMEOUT`]. Events wait in the sandbox until they are asked for, so a watcher holds no memory of its own. Watchers do not
//! survive a restart of the daemon; clients get `not_found` then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::SandboxId;
use base::IgnorePoison;
use engine::{PathDetails, Watch, WatchEvent, WatchEventKind};
use rand::RngExt as _;
use serde_json::Value;
use tokio::time::Instant;

use super::describe;
use super::messages::event;
use crate::envd::connect::{Code, RpcError};
use crate::envd::failure::Failure;
use crate::envd::target::Target;

/// Most watchers of a sandbox.
const MAX_WATCHERS: usize = 32;
/// A client that is gone removes nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// The watchers of all sandboxes.
#[derive(Default)]
pub struct Watchers {
    entries: Mutex<HashMap<(SandboxId, String), Arc<Watcher>>>,
}

struct Watcher {
    user: String,
    path: String,
    include_entry: bool,
    /// `None` once the watch has ended.
    watch: tokio::sync::Mutex<Option<Watch>>,
    last_used: Mutex<Instant>,
}

impl Watchers {
    /// Adds a watch; returns its id.
    pub fn add(
        &self,
        target: &Target,
        user: &str,
        path: String,
        include_entry: bool,
        watch: Watch,
    ) -> Result<String, RpcError> {
        let mut entries = self.lock();
        entries.retain(|(sandbox, _), watcher| {
            let is_idle = watcher.used().elapsed() > IDLE_TIMEOUT;
            !is_idle && target.service.engine.record(sandbox).is_some()
        });
        if entries.keys().filter(|(sandbox, _)| *sandbox == target.id).count() >= MAX_WATCHERS {
            let message = format!("the sandbox has {MAX_WATCHERS} watchers, the maximum; remove one");
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        let id = format!("w{:032x}", rand::rng().random::<u128>());
        let watcher = Watcher {
            user: user.to_owned(),
            path,
            include_entry,
            watch: tokio::sync::Mutex::new(Some(watch)),
            last_used: Mutex::new(Instant::now()),
        };
        entries.insert((target.id.clone(), id.clone()), Arc::new(watcher));
        Ok(id)
    }

    /// The events since the last call.
    pub async fn events(&self, target: &Target, id: &str) -> Result<Vec<Value>, Failure> {
        let key = (target.id.clone(), id.to_owned());
        let watcher = self.lock().get(&key).cloned().ok_or_else(|| unknown(id))?;
        *watcher.last_used.lock().ignore_poison() = Instant::now();
        let mut slot = watcher.watch.lock().await;
        let Some(watch) = slot.as_mut() else { return Ok(Vec::new()) };
        let (events, is_active) = match watch.poll().await {
            Ok(polled) => polled,
            Err(error) => {
                *slot = None;
                self.lock().remove(&key);
                return Err(Failure::of(error));
            }
        };
        if !is_active {
            *slot = None;
        }
        let mut list = Vec::with_capacity(events.len());
        for found in events {
            // Clients have no event for lost events.
            let WatchEvent::Changed { kind, name } = found else { continue };
            let details = match watcher.include_entry {
                true => entry_of(target, &watcher.user, &watcher.path, kind, &name).await,
                false => None,
            };
            list.push(event(kind, &name, details.as_ref()));
        }
        Ok(list)
    }

    pub fn remove(&self, sandbox: &SandboxId, id: &str) -> Result<(), RpcError> {
        let removed = self.lock().remove(&(sandbox.clone(), id.to_owned()));
        removed.map(drop).ok_or_else(|| unknown(id))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(SandboxId, String), Arc<Watcher>>> {
        // A panic while the lock is held leaves a valid map.
        self.entries.lock().ignore_poison()
    }
}

impl Watcher {
    fn used(&self) -> Instant {
        *self.last_used.lock().ignore_poison()
    }
}

fn unknown(id: &str) -> RpcError {
    RpcError::new(Code::NotFound, format!("watcher with id {} not found", rules::quoted(id)))
}

/// The details of the path of an event. `None` if the path is gone, or the event is of its end.
pub async fn entry_of(
    target: &Target,
    user: &str,
    root: &str,
    kind: WatchEventKind,
    name: &[u8],
) -> Option<PathDetails> {
    if matches!(kind, WatchEventKind::Remove | WatchEventKind::Rename) {
        return None;
    }
    let root = if root.is_empty() { "~" } else { root };
    let path = [root.as_bytes(), b"/", name].concat();
    describe(target, user, &path).await.ok()
}
