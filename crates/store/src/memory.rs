//! An in-memory store for tests of other crates: a naive implementation of the contract, with fault injection.
//!
//! Clones share one store, so that a test can kill an engine and start another one on the committed data.

mod events;
mod lists;
mod tables;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use api::{SandboxId, SandboxState};
use async_trait::async_trait;
use base::IgnorePoison;
use rules::TimeMs;
use tokio::sync::watch;

use self::tables::Tables;
use crate::followers::{Followers, VisibleEvent};
use crate::{
    Batch, BegunWork, Committed, Event, EventFilter, EventListing, EventPage, Filter, IdempotencyRecord,
    KeyRecord, Listing, MAX_PAGE, NewEvent, PageRange, SandboxRecord, SnapshotRecord, Store, StoreError,
    StoredBytes, TemplateRecord, Topic, Write,
};

/// A store for tests, which can be told to fail. Clones share their records.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The number of guards that block commits.
    held: watch::Sender<u32>,
    followers: Followers,
}

#[derive(Debug, Default)]
struct State {
    tables: Tables,
    faults: VecDeque<StoreError>,
    commits: u64,
    closed: bool,
}

/// Blocks commits until it is dropped. See [`MemoryStore::hold_commits`].
#[derive(Debug)]
pub struct HeldCommits {
    shared: Arc<Shared>,
}

impl Drop for HeldCommits {
    fn drop(&mut self) {
        self.shared.held.send_modify(|held| *held -= 1);
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        let (state, held) = (Mutex::default(), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { state, held, followers: Followers::default() }) }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next commit fails with this and changes nothing; faults queue up. Commits that only count begun work do not fail.
    pub fn fail_next_commit(&self, error: StoreError) {
        self.lock().faults.push_back(error);
    }

    /// Blocks new commits until the guard is dropped, like a slow disk.
    pub fn hold_commits(&self) -> HeldCommits {
        self.shared.held.send_modify(|held| *held += 1);
        HeldCommits { shared: Arc::clone(&self.shared) }
    }

    /// Reopens a closed store, as the next daemon does.
    pub fn open_again(&self) {
        self.lock().closed = false;
    }

    /// The number of successful commits.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().ignore_poison()
    }

    /// Wakes the followers of the events after this sequence.
    fn wake(&self, state: &State, previous: u64) {
        let new = state.tables.events.iter().rev().take_while(|event| event.sequence > previous);
        let visible = new.map(|event| VisibleEvent {
            account: event.account.clone(),
            sandbox: event.sandbox.clone(),
            sequence: event.sequence,
        });
        let mut visible: Vec<_> = visible.collect();
        visible.reverse();
        self.shared.followers.wake(&visible);
    }

    fn read(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.lock();
        if state.closed { Err(StoreError::Closed) } else { Ok(state) }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        batch.check()?;
        let mut held = self.shared.held.subscribe();
        // `shared` owns the sender, so waiting cannot fail.
        let _ = held.wait_for(|held| *held == 0).await;
        let mut state = self.read()?;
        let is_count =
            |write: &Write| matches!(write, Write::PutBegunWork(_) | Write::DeleteBegunWork { .. });
        let can_fail = !batch.writes().iter().all(is_count);
        if let Some(fault) = can_fail.then(|| state.faults.pop_front()).flatten() {
            return Err(fault);
        }
        let previous = state.tables.last_sequence;
        let committed = state.tables.apply_all(batch)?;
        state.commits += 1;
        self.wake(&state, previous);
        Ok(committed)
    }

    async fn get(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        Ok(self.read()?.tables.sandboxes.get(id).map(|(_, record)| record.clone()))
    }

    async fn living(&self) -> Result<Vec<SandboxRecord>, StoreError> {
        let state = self.read()?;
        let records = state.tables.sandboxes.values().map(|(_, record)| record);
        Ok(records.filter(|record| record.state() != SandboxState::Terminated).cloned().collect())
    }

    async fn list(&self, filter: &Filter, page: PageRange) -> Result<Listing, StoreError> {
        let state = self.read()?;
        let mut fitting: Vec<_> =
            state.tables.sandboxes.values().filter(|(_, record)| lists::matches(filter, record)).collect();
        fitting.sort_by_key(|(row, record)| std::cmp::Reverse((record.created_at, *row)));
        let limit = page.limit.min(MAX_PAGE) as usize;
        let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let items =
            fitting.iter().skip(offset).take(limit).map(|(_, record)| lists::summary(record)).collect();
        Ok(Listing { items, total: fitting.len() as u64 })
    }

    async fn events(&self, sandbox: &SandboxId, after: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        let state = self.read()?;
        let fitting =
            state.tables.events.iter().filter(|event| event.sandbox == *sandbox && event.sequence > after);
        Ok(fitting.take(limit.min(MAX_PAGE) as usize).cloned().collect())
    }

    fn append(&self, event: NewEvent) -> Result<(), StoreError> {
        event.check()?;
        let mut state = self.read()?;
        let previous = state.tables.last_sequence;
        state.tables.append(event);
        self.wake(&state, previous);
        Ok(())
    }

    async fn list_events(&self, filter: &EventFilter, page: EventPage) -> Result<EventListing, StoreError> {
        Ok(events::list(&self.read()?.tables.events, filter, page))
    }

    async fn events_after(
        &self,
        filter: &EventFilter,
        after: u64,
        limit: u32,
    ) -> Result<(Vec<Event>, u64), StoreError> {
        let state = self.read()?;
        Ok(events::after(&state.tables.events, filter, after, limit, state.tables.last_sequence))
    }

    async fn last_event(&self) -> Result<u64, StoreError> {
        Ok(self.read()?.tables.last_sequence)
    }

    fn follow(&self, topic: Topic) -> watch::Receiver<u64> {
        self.shared.followers.follow(topic)
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        let mut keys: Vec<_> = self.read()?.tables.keys.values().cloned().collect();
        keys.sort_by(|left, right| (left.created_at, &left.id).cmp(&(right.created_at, &right.id)));
        Ok(keys)
    }

    async fn keys_version(&self) -> Result<u64, StoreError> {
        Ok(self.read()?.tables.key_changes)
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotRecord>, StoreError> {
        let mut snapshots: Vec<_> = self.read()?.tables.snapshots.values().cloned().collect();
        snapshots.sort_by(|one, two| (one.created_at, &one.id).cmp(&(two.created_at, &two.id)));
        Ok(snapshots)
    }

    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError> {
        let mut templates: Vec<_> = self.read()?.tables.templates.values().cloned().collect();
        templates.sort_by(|one, two| (one.created_at, &one.id).cmp(&(two.created_at, &two.id)));
        Ok(templates)
    }

    async fn begun_work(&self) -> Result<Vec<BegunWork>, StoreError> {
        Ok(self.read()?.tables.begun_work.values().cloned().collect())
    }

    async fn idempotency_record(
        &self,
        account: &str,
        endpoint: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, StoreError> {
        let key_scope = (account.to_owned(), endpoint.to_owned(), key.to_owned());
        Ok(self.read()?.tables.idempotency_records.get(&key_scope).cloned())
    }

    async fn stored_bytes(&self, account: &str) -> Result<StoredBytes, StoreError> {
        let state = self.read()?;
        Ok(events::stored_bytes(&state.tables.events, state.tables.idempotency_records.values(), account))
    }

    async fn purge(&self, before: TimeMs) -> Result<u64, StoreError> {
        let mut state = self.read()?;
        let Tables { sandboxes, events, once, .. } = &mut state.tables;
        let count = sandboxes.len();
        let mut gone = Vec::new();
        sandboxes.retain(|id, (_, record)| {
            let stays = record.lifecycle.end().is_none_or(|(at, _)| at >= before);
            if !stays {
                gone.push(id.clone());
            }
            stays
        });
        events.retain(|event| {
            let orphaned = event.at < before && !sandboxes.contains_key(&event.sandbox);
            !(orphaned || gone.contains(&event.sandbox))
        });
        once.keep(events);
        Ok((count - sandboxes.len()) as u64)
    }

    async fn purge_beyond(&self, most_bytes: u64) -> Result<u64, StoreError> {
        let mut state = self.read()?;
        let Tables { sandboxes, events, once, .. } = &mut state.tables;
        let mut ended: Vec<_> =
            sandboxes.values().filter(|(_, record)| record.state() == SandboxState::Terminated).collect();
        // Newest first: what comes after the limit of its account goes.
        ended
            .sort_by_key(|(row, record)| std::cmp::Reverse((record.lifecycle.end().map(|(at, _)| at), *row)));
        let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
        let mut gone = BTreeSet::new();
        for (_, record) in ended {
            let of_account = bytes.entry(&record.account).or_default();
            *of_account += ended_bytes(record);
            if *of_account > most_bytes {
                gone.insert(record.id.clone());
            }
        }
        sandboxes.retain(|id, _| !gone.contains(id));
        events.retain(|event| !gone.contains(&event.sandbox));
        once.keep(events);
        Ok(gone.len() as u64)
    }

    async fn purge_idempotency_records(&self, now: TimeMs) -> Result<u64, StoreError> {
        let mut state = self.read()?;
        let previous = state.tables.idempotency_records.len();
        state.tables.idempotency_records.retain(|_, record| !record.is_expired(now));
        Ok((previous - state.tables.idempotency_records.len()) as u64)
    }

    async fn close(&self) {
        self.lock().closed = true;
    }
}

/// What the record of a terminated sandbox counts for.
fn ended_bytes(record: &SandboxRecord) -> u64 {
    let texts = record.layers.iter().chain(&record.image_env).map(|text| text.len() as u64);
    let config = serde_json::to_string(&record.config).unwrap_or_default().len() as u64;
    2048 + config + texts.sum::<u64>()
}
