//! The network policy of a sandbox and its traffic.

use api::{CreateEgress, CreateNetwork, EgressPolicy, NetworkView, SandboxView};
use hyper::Method;

use crate::Result;
use crate::sandbox::Sandbox;
use crate::transport::ApiCall;
use crate::transport::retry::Safety;

impl Sandbox {
    /// Returns the network policy, and the traffic since the processes of the sandbox were last started.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let sandbox = client.create("ubuntu:24.04").only_domains(["example.com"]).await?;
    /// assert_eq!(sandbox.network().await?.egress.allow, ["example.com"]);
    /// # Ok(()) });
    /// ```
    pub async fn network(&self) -> Result<NetworkView> {
        self.send(ApiCall::get(self.path("/network"))).await
    }

    /// Replaces the policy for outgoing connections. It is in effect when this returns; connections that it does not allow are closed.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use sandboxd_client::{EgressDefault, EgressPolicy};
    /// let offline = EgressPolicy { default: EgressDefault::Deny, ..EgressPolicy::default() };
    /// let view = sandbox.set_egress(offline).await?;
    /// assert_eq!(view.network.egress.default, EgressDefault::Deny);
    /// # Ok(()) });
    /// ```
    pub async fn set_egress(&self, policy: EgressPolicy) -> Result<SandboxView> {
        let egress = CreateEgress {
            allow: Some(policy.allow),
            default: Some(policy.default),
            allow_networks: Some(policy.allow_networks),
            deny_networks: Some(policy.deny_networks),
        };
        let body = CreateNetwork { egress: Some(egress), ..CreateNetwork::default() };
        let call = ApiCall::new(Method::PATCH, self.path("/network"), Safety::Repeatable).json(&body)?;
        let view: SandboxView = self.send(call).await?;
        self.set_known(view.clone());
        Ok(view)
    }
}
