//! The store for production: SQLite in one file, in WAL mode.
//!
//! ```text
//!   commit, purge --bounded queue--> writer thread: all queued jobs become one transaction, one fsync
//!                                    (a bounded number of commits for each account)
//!   append --event journal (file)----> writer thread, first in each transaction
//!   get, list, ... ------------------> a few read-only connections, on the runtime's blocking threads, in turn for each account
//!                                      checkpoint thread: moves the WAL into the database, beside the writer,
//!                                      and makes the WAL longer ahead of it
//! ```
//!
//! After a crash at any moment, the next [`SqliteStore::open`] recovers all acknowledged writes. Dropping the store
//! finishes queued jobs and ends both threads, as [`crate::Store::close`] does.

mod apply;
mod begun_work;
mod checkpoint;
mod encoding;
mod error;
mod events;
mod file;
mod journal;
mod journal_flusher;
mod keys;
mod list;
mod posted;
mod purge;
mod quota;
mod read;
mod readers;
mod rows;
mod snapshots;
mod templates;
#[cfg(test)]
mod tests;
mod wal;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use api::SandboxId;
use async_trait::async_trait;
use base::IgnorePoison;
use permits::AccountPermits;
use rules::{QuotaTable, TimeMs};
use rusqlite::Connection;
use tokio::sync::watch;

use crate::followers::Followers;
use crate::{
    Batch, BegunWork, Committed, Event, EventFilter, EventListing, EventPage, Filter, IdempotencyRecord,
    KeyRecord, Listing, NewEvent, PageRange, SandboxRecord, SnapshotRecord, Store, StoreError, StoredBytes,
    TemplateRecord, Topic,
};
use journal::Journal;
use purge::{PurgeTarget, Purged};
use readers::{Readers, SERVICE};
use writer::{Job, Writer};

/// Commits of an account that wait for the writer at a time. Others of the account wait before them, so that the next commit of another
/// account is in one of the next transactions.
const COMMITS_PER_ACCOUNT: usize = 64;

/// A store in a SQLite database.
#[derive(Debug)]
pub struct SqliteStore {
    readers: Readers,
    commits: AccountPermits,
    /// `None` once it is closed.
    writer: Mutex<Option<Writer>>,
    followers: Arc<Followers>,
}

impl SqliteStore {
    /// Opens the database, creates it with mode 0600 if it is missing, and migrates it to the current version. Blocks. Its
    /// directory must exist.
    ///
    /// Only one process at a time may open it this way: it owns the event journal, and recovers the lines of the last
    /// process.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_with_quotas(path, QuotaTable::default())
    }

    /// As [`SqliteStore::open`], with quotas of stored bytes per account.
    pub fn open_with_quotas(path: impl Into<PathBuf>, quotas: QuotaTable) -> Result<Self, StoreError> {
        Self::open_with(path.into(), quotas, |connection, path| {
            let applied = apply::last_applied_line(connection)
                .map_err(|error| error.into_store_error(path, "cannot read the database"))?;
            let journal = Journal::open(path, applied)
                .map_err(|error| StoreError::failed("cannot open the event journal", error))?;
            Ok(Some(Arc::new(journal)))
        })
    }

    /// As [`SqliteStore::open`], while another process may have it open: this store cannot append to the event
    /// journal.
    pub fn open_beside(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_with(path.into(), QuotaTable::default(), |_, _| Ok(None))
    }

    fn open_with(
        path: PathBuf,
        quotas: QuotaTable,
        journal: impl FnOnce(&Connection, &Path) -> Result<Option<Arc<Journal>>, StoreError>,
    ) -> Result<Self, StoreError> {
        let path: Arc<PathBuf> = Arc::new(path);
        let connection = file::open(&path)?;
        let journal = journal(&connection, &path)?;
        let readers = Readers::new(Arc::clone(&path));
        let followers = Arc::<Followers>::default();
        let writer = Writer::start(connection, path, Arc::clone(&followers), quotas, journal)?;
        let commits = AccountPermits::new(COMMITS_PER_ACCOUNT);
        Ok(Self { readers, commits, writer: Mutex::new(Some(writer)), followers })
    }

    /// The accounts of all keys in a database, revoked keys included. Blocks. For checks that change nothing: the file is neither
    /// created nor migrated, and other processes may have it open.
    pub fn accounts_at(path: &Path) -> Result<Vec<String>, StoreError> {
        let accounts = file::open_unchanged(path).and_then(|connection| keys::accounts(&connection));
        accounts.map_err(|error| error.into_store_error(path, "cannot read the accounts of keys"))
    }

    async fn send_job<T>(&self, job: impl FnOnce(writer::ReplySender<T>) -> Job) -> Result<T, StoreError> {
        let queue = {
            let writer = self.writer.lock().ignore_poison();
            writer.as_ref().ok_or(StoreError::Closed)?.queue()
        };
        let (reply, answer) = tokio::sync::oneshot::channel();
        queue.send(job(reply)).await.map_err(|_| StoreError::Closed)?;
        drop(queue);
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn purge_all(&self, before: TimeMs, target: PurgeTarget) -> Result<u64, StoreError> {
        self.purge_in_parts(|reply| Job::Purge { before, target, reply }).await
    }

    async fn purge_in_parts(
        &self,
        part: impl Fn(writer::ReplySender<Purged>) -> Job,
    ) -> Result<u64, StoreError> {
        let mut count = 0;
        loop {
            let Purged { removed, more } = self.send_job(&part).await?;
            count += removed;
            if !more {
                return Ok(count);
            }
        }
    }

    fn take_writer(&self) -> Option<Writer> {
        self.writer.lock().ignore_poison().take()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        batch.check()?;
        let permit = self.commits.acquire(batch.account().unwrap_or(SERVICE)).await;
        let batch = encoding::encode_beside(batch).await?;
        self.send_job(|reply| Job::Commit { batch, reply, permit }).await
    }

    async fn get(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        self.get_for(SERVICE, id).await
    }

    async fn get_for(&self, account: &str, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        let id = id.clone();
        let read = move |connection: &mut _| read::get(connection, &id);
        self.readers.read(account, "cannot read a sandbox", read).await
    }

    async fn living(&self) -> Result<Vec<SandboxRecord>, StoreError> {
        self.readers.read(SERVICE, "cannot read the living sandboxes", read::living).await
    }

    async fn list(&self, filter: &Filter, page: PageRange) -> Result<Listing, StoreError> {
        let (account, filter) = (filter.account.clone(), filter.clone());
        let read = move |connection: &mut _| list::list(connection, &filter, page);
        self.readers.read(&account, "cannot list sandboxes", read).await
    }

    async fn events(&self, sandbox: &SandboxId, after: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        let sandbox = sandbox.clone();
        let read = move |connection: &mut _| read::events(connection, &sandbox, after, limit);
        self.readers.read(SERVICE, "cannot read events", read).await
    }

    fn append(&self, event: NewEvent) -> Result<(), StoreError> {
        event.check()?;
        let writer = self.writer.lock().ignore_poison();
        writer.as_ref().ok_or(StoreError::Closed)?.append(&event)
    }

    async fn list_events(&self, filter: &EventFilter, page: EventPage) -> Result<EventListing, StoreError> {
        let (account, filter) = (filter.account.clone(), filter.clone());
        let read = move |connection: &mut _| events::list(connection, &filter, page);
        self.readers.read(&account, "cannot list events", read).await
    }

    async fn events_after(
        &self,
        filter: &EventFilter,
        after: u64,
        limit: u32,
    ) -> Result<(Vec<Event>, u64), StoreError> {
        let (account, filter) = (filter.account.clone(), filter.clone());
        let read = move |connection: &mut _| events::after(connection, &filter, after, limit);
        self.readers.read(&account, "cannot read events", read).await
    }

    async fn last_event(&self) -> Result<u64, StoreError> {
        self.readers.read(SERVICE, "cannot read events", |connection| events::last(connection)).await
    }

    fn follow(&self, topic: Topic) -> watch::Receiver<u64> {
        self.followers.follow(topic)
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        self.readers.read(SERVICE, "cannot read the keys", keys::keys).await
    }

    async fn keys_version(&self) -> Result<u64, StoreError> {
        self.readers.read(SERVICE, "cannot read the version of the keys", keys::version).await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotRecord>, StoreError> {
        self.readers.read(SERVICE, "cannot read the snapshots", snapshots::all).await
    }

    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError> {
        self.readers.read(SERVICE, "cannot read the templates", templates::all).await
    }

    async fn begun_work(&self) -> Result<Vec<BegunWork>, StoreError> {
        self.readers.read(SERVICE, "cannot read begun work", begun_work::all).await
    }

    async fn idempotency_record(
        &self,
        account: &str,
        endpoint: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, StoreError> {
        let (owner, endpoint, key) = (account.to_owned(), endpoint.to_owned(), key.to_owned());
        let read = move |connection: &mut _| keys::idempotency_record(connection, owner, endpoint, key);
        self.readers.read(account, "cannot read an idempotency record", read).await
    }

    async fn stored_bytes(&self, account: &str) -> Result<StoredBytes, StoreError> {
        let owner = account.to_owned();
        let read = move |connection: &mut _| quota::stored_bytes(connection, &owner);
        self.readers.read(account, "cannot read the stored bytes of an account", read).await
    }

    async fn purge(&self, before: TimeMs) -> Result<u64, StoreError> {
        let count = self.purge_all(before, PurgeTarget::Sandboxes).await?;
        self.purge_all(before, PurgeTarget::OrphanedEvents).await?;
        Ok(count)
    }

    async fn purge_beyond(&self, most_bytes: u64) -> Result<u64, StoreError> {
        let read = move |connection: &mut _| purge::accounts_beyond(connection, most_bytes);
        let mut count = 0;
        for account in self.readers.read(SERVICE, "cannot read the stored bytes of accounts", read).await? {
            let part = |reply| Job::PurgeBeyond { account: account.clone(), most_bytes, reply };
            count += self.purge_in_parts(part).await?;
        }
        Ok(count)
    }

    async fn purge_idempotency_records(&self, now: TimeMs) -> Result<u64, StoreError> {
        self.purge_all(now, PurgeTarget::IdempotencyRecords).await
    }

    async fn close(&self) {
        self.readers.close().await;
        let Some(writer) = self.take_writer() else { return };
        // Joining waits for the disk. It fails only if the runtime is shutting down.
        let _ = tokio::task::spawn_blocking(|| drop(writer)).await;
    }
}
