//! Handles for sandboxes that exist, by their ids and names.

use api::{SandboxId, SandboxName, SandboxView};

use crate::client::Client;
use crate::sandbox::Sandbox;
use crate::transport::ApiCall;
use crate::{Error, Result};

impl Client {
    /// Returns a sandbox with its current state, by its id or its name.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let id = client.create("ubuntu:24.04").await?.id().to_string();
    /// let sandbox = client.get(&id).await?;
    /// assert_eq!(sandbox.known().unwrap().image, "ubuntu:24.04");
    /// # Ok(()) });
    /// ```
    pub async fn get(&self, id_or_name: &str) -> Result<Sandbox> {
        let sandbox = self.find(id_or_name).await?;
        if sandbox.known().is_none() {
            sandbox.refresh().await?;
        }
        Ok(sandbox)
    }

    /// A handle for a sandbox, by its id or its name. Sends a request only for a name. The handle has the id, so it stays with this
    /// sandbox if another one gets the name.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").name("web").await?;
    /// assert_eq!(client.find("web").await?.id(), sandbox.id());
    /// sandbox.terminate().await?;
    /// assert!(client.find("web").await.is_err());
    /// # Ok(()) });
    /// ```
    pub async fn find(&self, id_or_name: &str) -> Result<Sandbox> {
        if id_or_name.parse::<SandboxId>().is_ok() {
            return self.sandbox(id_or_name);
        }
        let name: SandboxName = id_or_name.parse().map_err(|why| {
            let message = format!("'{}' is neither a sandbox id nor a name", id_or_name.escape_debug());
            Error::argument("sandboxId", message).caused_by(why)
        })?;
        let found: SandboxView = self.transport().json(ApiCall::get(format!("/v1/sandboxes/{name}"))).await?;
        Ok(Sandbox::new(self.clone(), found.id.clone(), Some(found)))
    }

    /// A handle for a sandbox. Sends no request, so the sandbox need not exist.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let id = client.create("ubuntu:24.04").await?.id().to_string();
    /// let result = client.sandbox(&id)?.execute("echo hi").await?;
    /// assert!(client.sandbox("../etc").is_err());
    /// # Ok(()) });
    /// ```
    pub fn sandbox(&self, id: &str) -> Result<Sandbox> {
        let id: SandboxId = id.parse().map_err(|why| {
            let message = format!("'{}' is not a sandbox id", id.escape_debug());
            Error::argument("sandboxId", message).caused_by(why)
        })?;
        Ok(Sandbox::new(self.clone(), id, None))
    }
}
