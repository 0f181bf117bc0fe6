//! The tables of the in-memory store, and how a batch changes them: as a whole, or not at all.

use std::collections::BTreeMap;

use api::{SandboxId, SandboxState, SnapshotId, TemplateId};
use rules::TimeMs;

use super::events::{OnceIndex, evict_posted};
use crate::{
    Batch, BegunWork, Committed, Event, IdempotencyRecord, KeyRecord, NewEvent, SandboxRecord,
    SnapshotRecord, StoreError, TemplateRecord, Write,
};

/// The records of all kinds.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// With the order of their first commits.
    pub(super) sandboxes: BTreeMap<SandboxId, (u64, SandboxRecord)>,
    pub(super) events: Vec<Event>,
    pub(super) once: OnceIndex,
    pub(super) last_row: u64,
    pub(super) last_sequence: u64,
    pub(super) keys: BTreeMap<String, KeyRecord>,
    pub(super) key_changes: u64,
    pub(super) idempotency_records: BTreeMap<KeyScope, IdempotencyRecord>,
    pub(super) snapshots: BTreeMap<SnapshotId, SnapshotRecord>,
    pub(super) templates: BTreeMap<TemplateId, TemplateRecord>,
    /// By kind and subject.
    pub(super) begun_work: BTreeMap<(String, String), BegunWork>,
}

/// Account, endpoint and key of an idempotency record.
pub(super) type KeyScope = (String, String, String);

/// The state of a row before a batch changed it.
enum Undo {
    Sandbox(SandboxId, Option<Box<(u64, SandboxRecord)>>),
    Key(String, Option<KeyRecord>),
    IdempotencyRecord(KeyScope, Option<IdempotencyRecord>),
    Snapshot(SnapshotId, Option<SnapshotRecord>),
    Template(TemplateId, Option<Box<TemplateRecord>>),
    BegunWork((String, String), Option<BegunWork>),
    Events(Vec<Event>),
    Nothing,
}

fn key_scope(record: &IdempotencyRecord) -> KeyScope {
    (record.account.clone(), record.endpoint.clone(), record.key.clone())
}

fn restore<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, previous: Option<V>) {
    match previous {
        Some(previous) => rows.insert(key, previous),
        None => rows.remove(&key),
    };
}

impl Tables {
    /// Applies all writes, or none.
    pub(super) fn apply_all(&mut self, batch: Batch) -> Result<Committed, StoreError> {
        let numbers = (self.last_row, self.last_sequence, self.key_changes);
        let (events, mut committed, mut undo) = (self.events.len(), Committed::default(), Vec::new());
        for write in batch.into_writes() {
            undo.push(self.previous(&write));
            if let Err(error) = self.apply(write, &mut committed) {
                for previous in undo.into_iter().rev() {
                    match previous {
                        Undo::Sandbox(id, previous) => {
                            restore(&mut self.sandboxes, id, previous.map(|row| *row));
                        }
                        Undo::Key(id, previous) => restore(&mut self.keys, id, previous),
                        Undo::IdempotencyRecord(key_scope, previous) => {
                            restore(&mut self.idempotency_records, key_scope, previous);
                        }
                        Undo::Snapshot(id, previous) => restore(&mut self.snapshots, id, previous),
                        Undo::Template(id, previous) => {
                            restore(&mut self.templates, id, previous.map(|record| *record));
                        }
                        Undo::BegunWork(key, previous) => restore(&mut self.begun_work, key, previous),
                        Undo::Events(previous) => self.events = previous,
                        Undo::Nothing => {}
                    }
                }
                self.events.truncate(events);
                self.once.keep(&self.events);
                (self.last_row, self.last_sequence, self.key_changes) = numbers;
                return Err(error);
            }
        }
        Ok(committed)
    }

    fn previous(&self, write: &Write) -> Undo {
        let sandbox =
            |id: &SandboxId| Undo::Sandbox(id.clone(), self.sandboxes.get(id).cloned().map(Box::new));
        let template =
            |id: &TemplateId| Undo::Template(id.clone(), self.templates.get(id).cloned().map(Box::new));
        let key = |id: &String| Undo::Key(id.clone(), self.keys.get(id).cloned());
        let begun = |(kind, subject): (&String, &String)| {
            let key = (kind.clone(), subject.clone());
            let previous = self.begun_work.get(&key).cloned();
            Undo::BegunWork(key, previous)
        };
        match write {
            Write::PutSandbox(record) => sandbox(&record.id),
            Write::DeleteSandbox(id) => sandbox(id),
            Write::PutKey(record) => key(&record.id),
            Write::RevokeKey { id, .. } => key(id),
            Write::PutIdempotencyRecord(record) => {
                let key_scope = key_scope(record);
                Undo::IdempotencyRecord(key_scope.clone(), self.idempotency_records.get(&key_scope).cloned())
            }
            Write::PutSnapshot(record) => {
                Undo::Snapshot(record.id.clone(), self.snapshots.get(&record.id).cloned())
            }
            Write::DeleteSnapshot(id) => Undo::Snapshot(id.clone(), self.snapshots.get(id).cloned()),
            Write::PutTemplate(record) => template(&record.id),
            Write::DeleteTemplate(id) => template(id),
            Write::PutBegunWork(work) => begun((&work.kind, &work.subject)),
            Write::DeleteBegunWork { kind, subject } => begun((kind, subject)),
            Write::KeepPosted { .. } => Undo::Events(self.events.clone()),
            Write::AppendEvent(_) => Undo::Nothing,
        }
    }

    fn apply(&mut self, write: Write, committed: &mut Committed) -> Result<(), StoreError> {
        match write {
            Write::PutSandbox(record) => return self.put(*record),
            Write::PutKey(key) => return self.put_key(*key),
            Write::RevokeKey { id, at } => return self.revoke_key(id, at),
            Write::PutIdempotencyRecord(record) => return self.put_idempotency_record(*record),
            Write::DeleteSandbox(id) => {
                self.sandboxes.remove(&id);
            }
            Write::PutSnapshot(record) => {
                self.snapshots.insert(record.id.clone(), *record);
            }
            Write::DeleteSnapshot(id) => {
                self.snapshots.remove(&id);
            }
            Write::PutTemplate(record) => {
                self.templates.insert(record.id.clone(), *record);
            }
            Write::DeleteTemplate(id) => {
                self.templates.remove(&id);
            }
            Write::PutBegunWork(work) => {
                self.begun_work.insert((work.kind.clone(), work.subject.clone()), work);
            }
            Write::DeleteBegunWork { kind, subject } => {
                self.begun_work.remove(&(kind, subject));
            }
            Write::KeepPosted { account, most_bytes } => {
                evict_posted(&mut self.events, &account, most_bytes);
            }
            Write::AppendEvent(event) => committed.event_sequences.push(self.append(event)),
        }
        Ok(())
    }

    /// Returns its number, or that of the existing event with the same `once`.
    pub(super) fn append(&mut self, event: NewEvent) -> u64 {
        if let Some(sequence) = self.once.find(event.once.as_ref()) {
            return sequence;
        }
        let NewEvent { sandbox, account, run, at, kind, data, once } = event;
        self.last_sequence += 1;
        let sequence = self.last_sequence;
        self.once.add(once, sequence);
        let kind = kind.as_str().to_owned();
        self.events.push(Event { sequence, sandbox, account, run, at, kind, data });
        sequence
    }

    fn put_key(&mut self, key: KeyRecord) -> Result<(), StoreError> {
        if self.keys.values().any(|other| other.id == key.id || other.hash == key.hash) {
            return Err(StoreError::KeyTaken { id: key.id });
        }
        self.key_changes += 1;
        self.keys.insert(key.id.clone(), key);
        Ok(())
    }

    fn revoke_key(&mut self, id: String, at: TimeMs) -> Result<(), StoreError> {
        let Some(key) = self.keys.get_mut(&id) else { return Err(StoreError::NoSuchKey { id }) };
        if key.revoked_at.is_none() {
            key.revoked_at = Some(at);
            self.key_changes += 1;
        }
        Ok(())
    }

    fn put_idempotency_record(&mut self, record: IdempotencyRecord) -> Result<(), StoreError> {
        let key_scope = key_scope(&record);
        if self
            .idempotency_records
            .get(&key_scope)
            .is_some_and(|stored| !stored.is_expired(record.created_at))
        {
            return Err(StoreError::AlreadyRecorded { endpoint: record.endpoint, key: record.key });
        }
        self.idempotency_records.insert(key_scope, record);
        Ok(())
    }

    fn put(&mut self, record: SandboxRecord) -> Result<(), StoreError> {
        let id = record.id.clone();
        let stored = self.sandboxes.get(&id).map(|(row, stored)| (*row, stored.revision));
        if let Some((_, stored)) = stored.filter(|(_, stored)| *stored >= record.revision) {
            return Err(StoreError::Stale { id, stored, offered: record.revision });
        }
        let living = |record: &SandboxRecord| record.state() != SandboxState::Terminated;
        let mut others = self.sandboxes.values().map(|(_, other)| other).filter(|other| other.id != id);
        if living(&record) && others.any(|other| living(other) && other.slot == record.slot) {
            return Err(StoreError::SlotTaken { id, slot: record.slot });
        }
        let row = stored.map_or(self.last_row + 1, |(row, _)| row);
        self.last_row = self.last_row.max(row);
        self.sandboxes.insert(id, (row, record));
        Ok(())
    }
}
