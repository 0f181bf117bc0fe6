//! The client: a service URL with an API key. Its methods are next to the types they return: `sandbox/create.rs`, `sandbox/list.rs`,
//! `sandbox.rs`. `settings.rs` builds it.

pub mod images;

use std::fmt;

use api::{Health, InfoView, UsageView};

use crate::Result;
use crate::transport::{ApiCall, Transport};

/// A client of one service with one API key. Clones are cheap and share connections.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// let sandbox = client.create("ubuntu:24.04").await?;
/// assert_eq!(sandbox.execute("echo hi").await?.stdout, "hi\n");
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Client {
    transport: Transport,
}

impl Client {
    pub(crate) fn new(transport: Transport) -> Self {
        Self { transport }
    }

    /// Returns the health of the service. This call needs no valid key.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// assert_eq!(client.health().await?.status, "ok");
    /// # Ok(()) });
    /// ```
    pub async fn health(&self) -> Result<Health> {
        self.transport.json(ApiCall::get("/v1/health")).await
    }

    /// The version of the service, its isolation backends, and the limits for the key.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// use sandboxd_client::Isolation;
    /// let info = client.info().await?;
    /// let has_gvisor = info.backends.iter().any(|backend| backend.name == Isolation::Gvisor);
    /// assert_eq!((has_gvisor, info.default_isolation), (false, Isolation::Container));
    /// assert!(info.limits.cpu.contains(&2));
    /// # Ok(()) });
    /// ```
    pub async fn info(&self) -> Result<InfoView> {
        self.transport.json(ApiCall::get("/v1/info")).await
    }

    /// What the account uses of each quota; `allowed` is `None` where a quota is unlimited.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let usage = client.usage().await?;
    /// if usage.sandboxes.allowed.is_some_and(|allowed| usage.sandboxes.used >= allowed) {
    ///     println!("{} cannot create another sandbox", usage.account);
    /// }
    /// # Ok(()) });
    /// ```
    pub async fn usage(&self) -> Result<UsageView> {
        self.transport.json(ApiCall::get("/v1/usage")).await
    }

    /// The URL of the service.
    ///
    /// ```
    /// let client = sandboxd_client::Client::builder().url("https://a.example/").key("k").system_certificates().build()?;
    /// assert_eq!(client.url(), "https://a.example:443");
    /// # Ok::<(), sandboxd_client::Error>(())
    /// ```
    pub fn url(&self) -> String {
        self.transport.service_url().url("")
    }

    /// A client with the same connections that does not [wait for limits](crate::ClientBuilder::limit_wait), for calls whose caller does.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.without_limit_waits().create("busy").without_waiting().await.unwrap_err();
    /// assert!(error.retry_after().is_some());
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn without_limit_waits(&self) -> Self {
        Self { transport: self.transport.without_limit_waits() }
    }

    #[cfg(test)]
    pub(crate) fn authorization(&self) -> &str {
        self.transport.authorization().and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// A client of the same service with connections of its own, for use in another Tokio runtime.
    pub(crate) fn reconnected(&self) -> Self {
        Self { transport: self.transport.reconnected() }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }
}

/// Omits the key.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &self.url()).finish_non_exhaustive()
    }
}
