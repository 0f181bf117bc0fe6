//! Exposed ports of a sandbox, and tokens for private ports.

use std::time::Duration;

use api::{EventKind, ExposeBody, Port, PortClosed, PortList, PortToken, PortVisibility, TokenBody};
use hyper::Method;

use crate::millis::ms;
use crate::sandbox::Sandbox;
use crate::transport::ApiCall;
use crate::transport::retry::Safety;
use crate::{Result, ids};

impl Sandbox {
    /// Exposes a port at a URL; `.await` sends the request. By default the port is private: access requires an API key of the account or
    /// a [token](Self::port_token). Exposing a port again replaces its settings and revokes its tokens.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let port = sandbox.expose(8080).public().await?;
    /// println!("look at {}", port.url);
    /// # assert_eq!((port.port, port.visibility), (8080, sandboxd_client::PortVisibility::Public));
    /// # Ok(()) });
    /// ```
    pub fn expose(&self, port: u16) -> Expose {
        let body = ExposeBody { port: port.into(), visibility: None, auto_resume: None };
        Expose { sandbox: self.clone(), body, key: None }
    }

    /// Lists the exposed ports by number.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.expose(8080).await?;
    /// for port in sandbox.ports().await? {
    ///     println!("{} at {}", port.port, port.url);
    /// }
    /// # assert_eq!(sandbox.ports().await?.len(), 1);
    /// # Ok(()) });
    /// ```
    pub async fn ports(&self) -> Result<Vec<Port>> {
        let call = ApiCall::get(format!("/v1/sandboxes/{}/ports", self.id()));
        let list: PortList = self.send(call).await?;
        Ok(list.data)
    }

    /// Closes a port: its connections are closed and its tokens revoked.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// sandbox.expose(8080).await?;
    /// sandbox.close_port(8080).await?;
    /// assert_eq!(sandbox.close_port(8080).await.unwrap_err().code(), sandboxd_client::Code::PortNotFound);
    /// # Ok(()) });
    /// ```
    pub async fn close_port(&self, port: u16) -> Result<PortClosed> {
        let path = format!("/v1/sandboxes/{}/ports/{port}", self.id());
        let closed = self.send(ApiCall::new(Method::DELETE, path, Safety::AfterAnswer)).await?;
        self.record_event(EventKind::PortClosed, &[("port", port.into()), ("reason", "request".into())]);
        Ok(closed)
    }

    /// Creates a token for a private port; `.await` sends the request. The token is valid for an hour, unless
    /// [`expires_in`](TokenFor::expires_in) sets another time.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use std::time::Duration;
    /// sandbox.expose(8080).await?;
    /// let token = sandbox.port_token(8080).expires_in(Duration::from_secs(600)).await?;
    /// // For a browser; a program sends `token.token` as the header X-Sandbox-Token.
    /// println!("open {}", token.url);
    /// # assert!(token.url.contains(&token.token));
    /// # Ok(()) });
    /// ```
    pub fn port_token(&self, port: u16) -> TokenFor {
        TokenFor { sandbox: self.clone(), port, body: TokenBody::default() }
    }
}

/// A port to expose; `.await` sends the request.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let port = sandbox.expose(3000).auto_resume(false).await?;
/// assert!(!port.auto_resume);
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct Expose {
    sandbox: Sandbox,
    body: ExposeBody,
    key: Option<String>,
}

impl Expose {
    /// Allows access without a key to anyone who has the URL.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let port = sandbox.expose(8080).public().await?;
    /// assert_eq!(port.visibility, sandboxd_client::PortVisibility::Public);
    /// # Ok(()) });
    /// ```
    pub fn public(mut self) -> Self {
        self.body.visibility = Some(PortVisibility::Public);
        self
    }

    /// Sets whether traffic resumes a paused sandbox. The default is true.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert!(!sandbox.expose(8080).auto_resume(false).await?.auto_resume);
    /// # Ok(()) });
    /// ```
    pub fn auto_resume(mut self, auto_resume: bool) -> Self {
        self.body.auto_resume = Some(auto_resume);
        self
    }

    /// Sets the `Idempotency-Key`. By default the library generates one for its retries.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let port = sandbox.expose(8080).idempotency_key("preview-of-job-17").await?;
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn send(self) -> Result<Port> {
        let key = self.key.unwrap_or_else(|| ids::random_id("sbx_"));
        let path = format!("/v1/sandboxes/{}/ports", self.sandbox.id());
        let call = ApiCall::new(Method::POST, path, Safety::Repeatable).json(&self.body)?.key(&key)?;
        let port: Port = self.sandbox.send(call).await?;
        let data = [
            ("port", port.port.into()),
            ("visibility", port.visibility.as_str().into()),
            ("autoResume", port.auto_resume.into()),
        ];
        self.sandbox.record_event(EventKind::PortExposed, &data);
        Ok(port)
    }
}

awaited! { Expose -> Port; }

/// A token to create; `.await` sends the request.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// sandbox.expose(8080).await?;
/// let token = sandbox.port_token(8080).await?;
/// assert!(token.token.starts_with("spt_"));
/// # Ok(()) });
/// ```
#[must_use = "a request does nothing unless awaited"]
pub struct TokenFor {
    sandbox: Sandbox,
    port: u16,
    body: TokenBody,
}

impl TokenFor {
    /// Sets the validity: from a second to a week.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.expose(8080).await?;
    /// let day = std::time::Duration::from_secs(24 * 3600);
    /// let token = sandbox.port_token(8080).expires_in(day).await?;
    /// # Ok(()) });
    /// ```
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.body.expires_in_ms = Some(ms(time).into());
        self
    }

    async fn send(self) -> Result<PortToken> {
        let path = format!("/v1/sandboxes/{}/ports/{}/token", self.sandbox.id(), self.port);
        // Tokens are not stored, so creating another is harmless.
        let call = ApiCall::new(Method::POST, path, Safety::Repeatable).json(&self.body)?;
        self.sandbox.send(call).await
    }
}

awaited! { TokenFor -> PortToken; }
