//! What the service is, and what it allows the caller.

use api::InfoView;

use crate::Result;
use crate::client::Client;
use crate::transport::ApiCall;

impl Client {
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
        self.transport().json(ApiCall::get("/v1/info")).await
    }
}
