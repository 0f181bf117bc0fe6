//! Batches of writes, committed atomically. A new kind of row is a new [`Write`] and an arm in each store.

use api::{EventKind, SandboxId, SnapshotId, TemplateId};
use rules::TimeMs;

use crate::{
    BegunWork, IdempotencyRecord, KeyRecord, SandboxRecord, SnapshotRecord, StoreError, TemplateRecord,
};

/// The maximum number of writes in one batch.
pub const MAX_WRITES: usize = 512;

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Inserts the record, or replaces an older one of the same id.
    PutSandbox(Box<SandboxRecord>),
    /// Removes a record, as after a failed start. Its events stay. No error if there is none.
    DeleteSandbox(SandboxId),
    AppendEvent(NewEvent),
    /// Removes the oldest posted events of an account while they take more than `most_bytes`.
    KeepPosted {
        account: String,
        most_bytes: u64,
    },
    /// Adds a key; [`StoreError::KeyTaken`] if one has its id or its hash.
    PutKey(Box<KeyRecord>),
    /// Revokes a key permanently. A revoked key stays unchanged; [`StoreError::NoSuchKey`] if there is none.
    RevokeKey {
        id: String,
        at: TimeMs,
    },
    /// Adds a snapshot. Replaces one of the same id.
    PutSnapshot(Box<SnapshotRecord>),
    /// Removes a snapshot. No error if there is none.
    DeleteSnapshot(SnapshotId),
    /// Adds a template. Replaces one of the same id.
    PutTemplate(Box<TemplateRecord>),
    /// Removes a template. No error if there is none.
    DeleteTemplate(TemplateId),
    /// Adds begun work, or replaces its count.
    PutBegunWork(BegunWork),
    /// Removes begun work. No error if there is none.
    DeleteBegunWork {
        kind: String,
        subject: String,
    },
    /// Adds an idempotency record. [`StoreError::AlreadyRecorded`] if one exists that had not expired when this one was made.
    PutIdempotencyRecord(Box<IdempotencyRecord>),
}

/// An event without a number yet. The sandbox need not have a record.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub sandbox: SandboxId,
    pub account: String,
    /// The run it belongs to; empty if none.
    pub run: String,
    pub at: TimeMs,
    pub kind: EventKind,
    pub data: serde_json::Value,
    /// Deduplicates: if an event with this text exists, from any daemon, this one is dropped.
    pub once: Option<String>,
}

/// Writes that take effect in order, all or none.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    writes: Vec<Write>,
}

/// The result of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    /// The numbers of the batch's events, in order. A dropped duplicate has the number of the existing event.
    pub event_sequences: Vec<u64>,
}

impl Batch {
    /// Without writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates or replaces a sandbox.
    pub fn put(self, record: SandboxRecord) -> Self {
        self.with(Write::PutSandbox(Box::new(record)))
    }

    /// Removes a sandbox.
    pub fn delete(self, id: SandboxId) -> Self {
        self.with(Write::DeleteSandbox(id))
    }

    /// Adds an event.
    pub fn event(self, event: NewEvent) -> Self {
        self.with(Write::AppendEvent(event))
    }

    /// Stores the response to a request under its key.
    pub fn idempotency_record(self, record: IdempotencyRecord) -> Self {
        self.with(Write::PutIdempotencyRecord(Box::new(record)))
    }

    /// Creates or replaces a snapshot.
    pub fn put_snapshot(self, record: SnapshotRecord) -> Self {
        self.with(Write::PutSnapshot(Box::new(record)))
    }

    /// Removes a snapshot.
    pub fn delete_snapshot(self, id: SnapshotId) -> Self {
        self.with(Write::DeleteSnapshot(id))
    }

    /// Creates or replaces a template.
    pub fn put_template(self, record: TemplateRecord) -> Self {
        self.with(Write::PutTemplate(Box::new(record)))
    }

    /// Removes a template.
    pub fn delete_template(self, id: TemplateId) -> Self {
        self.with(Write::DeleteTemplate(id))
    }

    /// Counts the begin of work that daemons may end during.
    pub fn put_begun_work(self, work: BegunWork) -> Self {
        self.with(Write::PutBegunWork(work))
    }

    /// The work has ended, and so has its count.
    pub fn delete_begun_work(self, kind: &str, subject: &str) -> Self {
        self.with(Write::DeleteBegunWork { kind: kind.to_owned(), subject: subject.to_owned() })
    }

    /// Adds any write.
    pub fn with(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// The writes in the order in which they take effect.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The writes in the order in which they take effect.
    pub fn into_writes(self) -> Vec<Write> {
        self.writes
    }

    /// The account that the writes are for, if they say so: that of the first one that has one.
    pub(crate) fn account(&self) -> Option<&str> {
        self.writes.iter().find_map(|write| match write {
            Write::PutSandbox(record) => Some(&*record.account),
            Write::AppendEvent(event) => Some(&event.account),
            Write::KeepPosted { account, .. } => Some(account),
            Write::PutKey(key) => Some(&key.account),
            Write::PutSnapshot(record) => Some(&record.account),
            Write::PutTemplate(record) => Some(&record.account),
            Write::PutIdempotencyRecord(record) => Some(&record.account),
            Write::DeleteSandbox(_)
            | Write::RevokeKey { .. }
            | Write::DeleteSnapshot(_)
            | Write::DeleteTemplate(_)
            | Write::PutBegunWork(_)
            | Write::DeleteBegunWork { .. } => None,
        })
    }

    /// The checks that need no access to the store. Every store runs them first.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.writes.len() > MAX_WRITES {
            return Err(StoreError::BatchTooLarge { writes: self.writes.len(), most: MAX_WRITES });
        }
        for write in &self.writes {
            match write {
                Write::PutSandbox(record) => {
                    let bad = |reason| StoreError::BadRecord { id: record.id.clone(), reason };
                    record.check().map_err(bad)?;
                }
                Write::AppendEvent(event) => event.check()?,
                Write::PutKey(key) => {
                    key.check().map_err(|reason| StoreError::BadRow { what: "a key", reason })?;
                }
                Write::PutSnapshot(record) => {
                    record.check().map_err(|reason| StoreError::BadRow { what: "a snapshot", reason })?;
                }
                Write::PutTemplate(record) => {
                    record.check().map_err(|reason| StoreError::BadRow { what: "a template", reason })?;
                }
                Write::PutIdempotencyRecord(record) => {
                    record
                        .check()
                        .map_err(|reason| StoreError::BadRow { what: "an idempotency record", reason })?;
                }
                Write::RevokeKey { at, .. } if i64::try_from(at.0).is_err() => {
                    let reason = "its time exceeds 63 bits";
                    return Err(StoreError::BadRow { what: "a revocation", reason });
                }
                Write::DeleteSandbox(_)
                | Write::DeleteSnapshot(_)
                | Write::DeleteTemplate(_)
                | Write::PutBegunWork(_)
                | Write::DeleteBegunWork { .. }
                | Write::RevokeKey { .. }
                | Write::KeepPosted { .. } => {}
            }
        }
        Ok(())
    }
}

impl NewEvent {
    /// Whether it can be stored.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if i64::try_from(self.at.0).is_err() {
            let reason = "the time of its event exceeds 63 bits";
            return Err(StoreError::BadRecord { id: self.sandbox.clone(), reason });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(account: &str, at: u64) -> NewEvent {
        NewEvent {
            sandbox: SandboxId::from_random([1; 20]),
            account: account.to_owned(),
            run: String::new(),
            at: TimeMs(at),
            kind: EventKind::ExecStarted,
            data: serde_json::Value::Null,
            once: None,
        }
    }

    const LATEST: u64 = i64::MAX as u64;

    #[test]
    fn the_account_is_that_of_the_first_write_that_names_one() {
        let without = Batch::new().delete(SandboxId::from_random([1; 20])).delete_begun_work("build", "tpl");
        assert_eq!(without.account(), None);
        let posted = Write::KeepPosted { account: "two".to_owned(), most_bytes: 1 };
        let batch = without.with(posted).event(event("three", 1));
        assert_eq!(batch.account(), Some("two"));
        assert_eq!(Batch::new().event(event("one", 1)).event(event("two", 1)).account(), Some("one"));
    }

    #[test]
    fn a_batch_has_at_most_512_writes() {
        let batch = |writes| (0..writes).fold(Batch::new(), |batch, _| batch.event(event("one", 1)));
        assert_eq!(batch(MAX_WRITES).check(), Ok(()));
        let error = batch(MAX_WRITES + 1).check().unwrap_err();
        assert_eq!(error.to_string(), "a batch has 513 writes; at most 512 are allowed");
    }

    #[test]
    fn times_have_to_fit_into_integers_of_the_database() {
        assert_eq!(Batch::new().event(event("one", LATEST)).check(), Ok(()));
        let error = Batch::new().event(event("one", LATEST + 1)).check().unwrap_err();
        assert!(error.to_string().contains("the time of its event exceeds 63 bits"), "{error}");
        let revoked =
            |at| Batch::new().with(Write::RevokeKey { id: "key".to_owned(), at: TimeMs(at) }).check();
        assert_eq!(revoked(LATEST), Ok(()));
        assert!(revoked(LATEST + 1).unwrap_err().to_string().contains("its time exceeds 63 bits"));
    }

    #[test]
    fn writes_stay_in_their_order() {
        let id = |number| SandboxId::from_random([number; 20]);
        let batch = Batch::new().delete(id(2)).delete(id(1)).delete(id(2));
        assert_eq!(batch.writes(), [2, 1, 2].map(|number| Write::DeleteSandbox(id(number))));
        assert_eq!(batch.clone().into_writes(), batch.writes());
    }
}
