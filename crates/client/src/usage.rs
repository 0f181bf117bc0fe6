//! What the account of a key uses, and what the operator allows it.

use api::UsageView;

use crate::Result;
use crate::client::Client;
use crate::transport::ApiCall;

impl Client {
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
        self.transport().json(ApiCall::get("/v1/usage")).await
    }
}
