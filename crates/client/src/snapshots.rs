//! Snapshots: take, list and delete them, roll back, and fork.

use api::{
    ForkBody, ForkList, RollbackBody, SandboxView, SnapshotBody, SnapshotDeleted, SnapshotId, SnapshotList,
    SnapshotView,
};
use hyper::Method;

use crate::client::Client;
use crate::pager::Pager;
use crate::pager::filtered_list::{FilteredList, ListedItem};
use crate::pager::item_stream::ItemStream;
use crate::sandbox::Sandbox;
use crate::transport::retry::Safety;
use crate::transport::{ApiCall, encoded};
use crate::{Result, ids};

impl Client {
    /// Lists snapshots, newest first.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// sandbox.snapshot().name("before").await?;
    /// for snapshot in client.snapshots().of(sandbox.id()).all().await? {
    ///     println!("{} {} bytes", snapshot.id, snapshot.size_bytes);
    /// }
    /// # assert_eq!(client.snapshots().all().await?.len(), 1);
    /// # Ok(()) });
    /// ```
    pub fn snapshots(&self) -> Snapshots {
        Snapshots(FilteredList::new(self.transport()))
    }

    /// Returns a snapshot.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let taken = client.create("ubuntu:24.04").await?.snapshot().await?;
    /// let snapshot = client.snapshot(taken.id.as_str()).await?;
    /// assert_eq!(snapshot, taken);
    /// # Ok(()) });
    /// ```
    pub async fn snapshot(&self, id: &str) -> Result<SnapshotView> {
        self.transport().json(ApiCall::get(path_of(id))).await
    }

    /// Deletes a snapshot. Sandboxes that were created from it are not affected.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let taken = client.create("ubuntu:24.04").await?.snapshot().await?;
    /// client.delete_snapshot(taken.id.as_str()).await?;
    /// let error = client.snapshot(taken.id.as_str()).await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::SnapshotNotFound);
    /// # Ok(()) });
    /// ```
    pub async fn delete_snapshot(&self, id: &str) -> Result<SnapshotDeleted> {
        self.transport().json(ApiCall::new(Method::DELETE, path_of(id), Safety::AfterAnswer)).await
    }
}

fn path_of(id: &str) -> String {
    format!("/v1/snapshots/{}", encoded(id))
}

impl Sandbox {
    /// Takes a snapshot of the disk, or with [`TakeSnapshot::memory`] of the processes, too; `.await` sends the request. Its id can be the image of a create.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// sandbox.execute("echo kept > file").await?;
    /// let snapshot = sandbox.snapshot().name("after-setup").await?;
    /// let copy = client.create(snapshot.id.as_str()).await?;
    /// assert_eq!(copy.execute("cat file").await?.stdout, "kept\n");
    /// # Ok(()) });
    /// ```
    pub fn snapshot(&self) -> TakeSnapshot {
        TakeSnapshot { sandbox: self.clone(), body: SnapshotBody::default(), key: None }
    }

    /// Ends all processes, replaces the disk by that of a snapshot of this sandbox, and starts the sandbox again. If the snapshot has
    /// processes, they continue.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.execute("echo before > file").await?;
    /// let snapshot = sandbox.snapshot().await?;
    /// sandbox.execute("echo after > file").await?;
    /// sandbox.rollback(snapshot.id.as_str()).await?;
    /// assert_eq!(sandbox.execute("cat file").await?.stdout, "before\n");
    /// # Ok(()) });
    /// ```
    pub async fn rollback(&self, snapshot: &str) -> Result<SandboxView> {
        let body = RollbackBody { snapshot_id: snapshot.to_owned() };
        let call = ApiCall::new(Method::POST, self.path("/rollback"), Safety::AfterAnswer).json(&body)?;
        let view: SandboxView = self.send(call).await?;
        self.set_known(view.clone());
        Ok(view)
    }

    /// Creates sandboxes with the configuration of this one and a copy of its disk: all, or none. `.await` sends the request.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.execute("echo kept > file").await?;
    /// for fork in sandbox.fork(2).env("ATTEMPT", "2").await? {
    ///     assert_eq!(fork.execute("cat file; echo $ATTEMPT").await?.stdout, "kept\n2\n");
    /// }
    /// # Ok(()) });
    /// ```
    pub fn fork(&self, count: u32) -> Fork {
        Fork {
            sandbox: self.clone(),
            body: ForkBody { count: count.into(), ..ForkBody::default() },
            key: None,
        }
    }
}

/// A snapshot to take; `.await` sends the request.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let snapshot = sandbox.snapshot().name("nightly").metadata("job", "17").idempotency_key("job-17").await?;
/// assert_eq!(snapshot.metadata["job"], "17");
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct TakeSnapshot {
    sandbox: Sandbox,
    body: SnapshotBody,
    key: Option<String>,
}

impl TakeSnapshot {
    /// Sets a name. Several snapshots can have the same.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert_eq!(sandbox.snapshot().name("nightly").await?.name.as_deref(), Some("nightly"));
    /// # Ok(()) });
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.body.name = Some(name.into());
        self
    }

    /// Stores the processes and their memory, too. Fails with `IsolationMismatch` if the isolation of the sandbox cannot.
    ///
    /// ```no_run
    /// # async fn example(client: &sandboxd_client::Client, sandbox: &sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// let snapshot = sandbox.snapshot().memory(true).await?;
    /// let copy = client.create(snapshot.id.as_str()).await?;
    /// assert_eq!(copy.execute("pgrep -c python3").await?.stdout, sandbox.execute("pgrep -c python3").await?.stdout);
    /// # Ok(()) }
    /// ```
    pub fn memory(mut self, memory: bool) -> Self {
        self.body.memory = Some(memory);
        self
    }

    /// Adds a tag.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// sandbox.snapshot().metadata("job", "17").await?;
    /// assert_eq!(client.snapshots().metadata("job", "17").all().await?.len(), 1);
    /// # Ok(()) });
    /// ```
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.metadata.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Sets the `Idempotency-Key`. By default the library generates one for its retries.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let first = sandbox.snapshot().idempotency_key("nightly-17").await?;
    /// assert_eq!(sandbox.snapshot().idempotency_key("nightly-17").await?.id, first.id);
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn send(self) -> Result<SnapshotView> {
        let key = self.key.unwrap_or_else(|| ids::random_id("sbx_"));
        let call = ApiCall::new(Method::POST, self.sandbox.path("/snapshots"), Safety::Repeatable);
        self.sandbox.send(call.json(&self.body)?.key(&key)?).await
    }
}

awaited! { TakeSnapshot -> SnapshotView; }

/// A fork; `.await` sends the request.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let forks = sandbox.fork(3).metadata("experiment", "7").await?;
/// assert_eq!(forks.len(), 3);
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct Fork {
    sandbox: Sandbox,
    body: ForkBody,
    key: Option<String>,
}

impl Fork {
    /// Continues copies of the processes in the new sandboxes. Fails with `IsolationMismatch` if the isolation of the sandbox cannot.
    ///
    /// ```no_run
    /// # async fn example(sandbox: &sandboxd_client::Sandbox) -> sandboxd_client::Result<()> {
    /// for fork in sandbox.fork(10).memory(true).await? {
    ///     assert_eq!(fork.execute("pgrep -c python3").await?.stdout, "1\n");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn memory(mut self, memory: bool) -> Self {
        self.body.memory = Some(memory);
        self
    }

    /// Adds an environment variable to those of the sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let forks = sandbox.fork(1).env("SEED", "4").await?;
    /// assert_eq!(forks[0].execute("echo $SEED").await?.stdout, "4\n");
    /// # Ok(()) });
    /// ```
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.env.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// Names the new sandbox, if it is the only one. Without it a fork has no name.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let sandbox = client.create("ubuntu:24.04").name("web").await?;
    /// let forks = sandbox.fork(1).name("web-2").await?;
    /// assert_eq!(client.find("web-2").await?.id(), forks[0].id());
    /// assert_eq!(sandbox.fork(1).await?[0].known().unwrap().name, None);
    /// # Ok(()) });
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.body.name = Some(name.into());
        self
    }

    /// Adds a tag. The tags of the sandbox are not copied then.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let sandbox = client.create("ubuntu:24.04").metadata("job", "17").await?;
    /// let forks = sandbox.fork(1).metadata("experiment", "7").await?;
    /// assert_eq!(forks[0].known().unwrap().metadata.get("job"), None);
    /// # Ok(()) });
    /// ```
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.body.metadata.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Sets the `Idempotency-Key`. By default the library generates one for its retries.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let first = sandbox.fork(1).idempotency_key("experiment-7").await?;
    /// assert_eq!(sandbox.fork(1).idempotency_key("experiment-7").await?[0].id(), first[0].id());
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn send(self) -> Result<Vec<Sandbox>> {
        let key = self.key.unwrap_or_else(|| ids::random_id("sbx_"));
        let call = ApiCall::new(Method::POST, self.sandbox.path("/fork"), Safety::Repeatable);
        let forks: ForkList = self.sandbox.send(call.json(&self.body)?.key(&key)?).await?;
        let client = self.sandbox.client();
        let handle = |view: SandboxView| Sandbox::new(client.clone(), view.id.clone(), Some(view));
        Ok(forks.data.into_iter().map(handle).collect())
    }
}

awaited! { Fork -> Vec<Sandbox>; }

/// A query for snapshots.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// # client.create("ubuntu:24.04").await?.snapshot().name("nightly").await?;
/// let page = client.snapshots().name("nightly").page_size(10).page(0).await?;
/// assert_eq!(page.pagination.total, 1);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Snapshots(FilteredList<SnapshotView>);

impl Snapshots {
    /// Filters by sandbox.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// assert!(client.snapshots().of(sandbox.id()).all().await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn of(mut self, sandbox: &api::SandboxId) -> Self {
        self.0.filter("sandboxId", sandbox.to_string());
        self
    }

    /// Filters by name.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// assert!(client.snapshots().name("nightly").all().await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.filter("name", name);
        self
    }

    /// Filters by tag. A snapshot must match all tags.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// assert!(client.snapshots().metadata("job", "17").all().await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.metadata(key, value);
        self
    }

    /// Sets the number of items per request: 1 to 100, by default 100.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// # for _ in 0..3 { sandbox.snapshot().await?; }
    /// let page = client.snapshots().page_size(2).page(0).await?;
    /// assert!(page.data.len() == 2 && page.pagination.has_more);
    /// # assert_eq!(client.snapshots().page_size(2).all().await?.len(), 3);
    /// # Ok(()) });
    /// ```
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.0.page_size = page_size;
        self
    }

    /// Returns one page, starting at `offset`.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let page = client.snapshots().page(0).await?;
    /// assert_eq!(page.pagination.total, 0);
    /// # Ok(()) });
    /// ```
    pub async fn page(&self, offset: u64) -> Result<SnapshotList> {
        self.0.page(offset).await
    }

    /// Returns all snapshots. If snapshots are created or deleted meanwhile, all others are returned once.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// for snapshot in client.snapshots().all().await? {
    ///     println!("{}", snapshot.id);
    /// }
    /// # Ok(()) });
    /// ```
    pub async fn all(&self) -> Result<Vec<SnapshotView>> {
        Pager::new(self.0.clone()).all().await
    }

    /// Streams all snapshots, fetching pages on demand. If snapshots are created or deleted meanwhile, all others are returned once.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// use futures_util::TryStreamExt;
    /// # client.create("ubuntu:24.04").await?.snapshot().name("nightly").await?;
    /// let mut snapshots = client.snapshots().page_size(10).stream();
    /// while let Some(snapshot) = snapshots.try_next().await? {
    ///     assert_eq!(snapshot.name.as_deref(), Some("nightly"));
    /// }
    /// # Ok(()) });
    /// ```
    pub fn stream(self) -> ItemStream<SnapshotView> {
        Pager::new(self.0).stream()
    }
}

impl ListedItem for SnapshotView {
    const PATH: &'static str = "/v1/snapshots";
    type Key = SnapshotId;

    fn key(&self) -> SnapshotId {
        self.id.clone()
    }
}
