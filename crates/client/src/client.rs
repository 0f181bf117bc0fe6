//! One key's view of a service: where every other thing begins. What it can do is beside what that is about: `create.rs`, `list.rs`,
//! `sandbox.rs`; how it is set up in `settings.rs`.

use std::fmt;

use api::Health;

use crate::Result;
use crate::transport::{Call, Transport};

/// One key's view of a service. Clones are cheap and share their connections.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
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

    /// Whether the service is well. It takes any key for this.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// assert_eq!(client.health().await?.status, "ok");
    /// # Ok(()) });
    /// ```
    pub async fn health(&self) -> Result<Health> {
        self.transport.json(Call::get("/v1/health")).await
    }

    /// Where the service is.
    ///
    /// ```
    /// let client = sandboxd_client::Client::builder().url("https://a.example/").key("k").system_certificates().build()?;
    /// assert_eq!(client.url(), "https://a.example:443");
    /// # Ok::<(), sandboxd_client::Error>(())
    /// ```
    pub fn url(&self) -> String {
        self.transport.place().url("")
    }

    /// The same service and key without a connection in common: for another runtime.
    pub(crate) fn apart(&self) -> Self {
        Self { transport: self.transport.apart() }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }
}

/// Without the key.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &self.url()).finish_non_exhaustive()
    }
}
