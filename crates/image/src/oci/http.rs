//! Requests to a registry: authentication, bounded responses, and errors. [`super::registry`] decides what is retried.
//!
//! All of a response may be hostile: nothing but a blob, which goes to the disk, is read beyond a bound.

use std::net::IpAddr;
use std::time::Duration;

use oci_client::Reference;
use oci_client::secrets::RegistryAuth;
use reqwest::header::{ACCEPT, AUTHORIZATION, RANGE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::challenge::Challenge;
use super::reach::{ClosedServer, Reach, closed_server};
use super::untrusted::{UntrustedServer, untrusted_server};

/// The largest response with a token.
const TOKEN_BYTES: usize = 256 << 10;
/// What is read of the body of an error.
const ERROR_BYTES: usize = 16 << 10;
/// The time for a token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("the connection failed")]
    Connection(#[source] reqwest::Error),
    #[error("it took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    /// The server answered with an error; `code` is that of the registry's protocol.
    #[error("the server answered {status}{}", said(.code))]
    Status { status: StatusCode, code: String },
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    #[error("the transfer ended after {received} of {expected} bytes")]
    Short { received: u64, expected: u64 },
    #[error("{0}")]
    Malformed(String),
    #[error(
        "the registry names the token server {server} of another domain, or without TLS; its login is not sent there"
    )]
    ForeignTokenServer { server: String },
    #[error(transparent)]
    Closed(#[from] ClosedServer),
    #[error(transparent)]
    Untrusted(#[from] UntrustedServer),
}

fn said(code: &str) -> String {
    if code.is_empty() { String::new() } else { format!(" ({})", code.escape_debug()) }
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        // The URL is known, and can have a secret in its query.
        let error = error.without_url();
        if let Some(closed) = closed_server(&error) {
            return closed.into();
        }
        untrusted_server(&error).map_or_else(|| Self::Connection(error), Self::Untrusted)
    }
}

/// What a request is authenticated with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Authorization {
    None,
    Basic(String, String),
    Bearer(String),
}

/// A repository of a registry.
pub(super) struct Repository {
    client: Client,
    reach: Reach,
    /// `https://HOST/v2/`.
    base: Url,
    name: String,
    login: RegistryAuth,
    authorization: Mutex<Authorization>,
}

impl Repository {
    pub(super) fn new(
        client: Client,
        reach: Reach,
        scheme: &str,
        reference: &Reference,
        login: RegistryAuth,
    ) -> Result<Self, HttpError> {
        let host = reference.resolve_registry();
        let base = format!("{scheme}://{host}/v2/");
        let base: Url = base.parse().map_err(|_| {
            HttpError::Malformed(format!("'{}' is not the name of a registry", host.escape_debug()))
        })?;
        reach.check(&base)?;
        let name = reference.repository().to_owned();
        Ok(Self { client, reach, base, name, login, authorization: Mutex::new(Authorization::None) })
    }

    /// Asks the registry how it wants requests to be authenticated, and does so.
    pub(super) async fn authenticate(&self) -> Result<(), HttpError> {
        let authorization = self.log_in().await?;
        *self.authorization.lock().await = authorization;
        Ok(())
    }

    async fn log_in(&self) -> Result<Authorization, HttpError> {
        if let RegistryAuth::Bearer(token) = &self.login {
            return Ok(Authorization::Bearer(token.clone()));
        }
        let response = self.client.get(self.base.clone()).send().await?;
        let basic = match &self.login {
            RegistryAuth::Basic(user, password) => Authorization::Basic(user.clone(), password.clone()),
            _ => Authorization::None,
        };
        match Challenge::of(response.headers()) {
            None => Ok(Authorization::None),
            Some(Challenge::Basic) => Ok(basic),
            Some(Challenge::Bearer { realm, service }) => {
                let token = self.token(&realm, service.as_deref(), &basic);
                let token = tokio::time::timeout(TOKEN_TIMEOUT, token).await;
                token.map_err(|_| HttpError::Timeout(TOKEN_TIMEOUT))?.map(Authorization::Bearer)
            }
        }
    }

    /// Gets a token from the server that the registry names.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        login: &Authorization,
    ) -> Result<String, HttpError> {
        let malformed = |what: &str| HttpError::Malformed(format!("the registry's token server {what}"));
        let mut url: Url = realm.parse().map_err(|_| malformed("has no valid address"))?;
        self.reach.check(&url)?;
        if *login != Authorization::None && !may_have_login(&url, &self.base) {
            let server = url.host_str().unwrap_or_default().to_owned();
            return Err(HttpError::ForeignTokenServer { server });
        }
        let scope = format!("repository:{}:pull", self.name);
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let request = authorize(self.client.get(url), login);
        let response = successful(request.send().await?).await?;
        let body = read(response, TOKEN_BYTES).await?;
        let body: TokenBody = serde_json::from_slice(&body).map_err(|_| malformed("sent no token"))?;
        body.token.or(body.access_token).ok_or_else(|| malformed("sent no token"))
    }

    /// A manifest: the one with this tag or digest.
    pub(super) async fn manifest(
        &self,
        reference: &str,
        accept: &[&str],
        limit: usize,
    ) -> Result<Vec<u8>, HttpError> {
        let url = self.url("manifests", reference)?;
        let get = |client: &Client| client.get(url.clone()).header(ACCEPT, accept.join(", "));
        read(successful(self.send(&get).await?).await?, limit).await
    }

    /// Begins the transfer of a blob, from a position if the server can.
    pub(super) async fn blob(&self, digest: &str, from: u64) -> Result<Response, HttpError> {
        let url = self.url("blobs", digest)?;
        let get = |client: &Client| {
            let request = client.get(url.clone());
            if from == 0 { request } else { request.header(RANGE, format!("bytes={from}-")) }
        };
        successful(self.send(&get).await?).await
    }

    fn url(&self, kind: &str, which: &str) -> Result<Url, HttpError> {
        let path = format!("{}/{kind}/{which}", self.name);
        self.base
            .join(&path)
            .map_err(|_| HttpError::Malformed(format!("'{}' is no path", path.escape_debug())))
    }

    /// Sends a request. If the registry does not accept its token any more, gets a new one and sends it again.
    async fn send(&self, get: &(dyn Fn(&Client) -> RequestBuilder + Sync)) -> Result<Response, HttpError> {
        let authorization = self.authorization.lock().await.clone();
        let response = authorize(get(&self.client), &authorization).send().await?;
        let is_expired = response.status() == StatusCode::UNAUTHORIZED
            && matches!(authorization, Authorization::Bearer(_))
            && !matches!(self.login, RegistryAuth::Bearer(_));
        if !is_expired {
            return Ok(response);
        }
        drop(response);
        // One of several transfers at a time; the others take its token.
        let mut current = self.authorization.lock().await;
        if *current == authorization {
            *current = self.log_in().await?;
        }
        let authorization = current.clone();
        drop(current);
        Ok(authorize(get(&self.client), &authorization).send().await?)
    }
}

/// Whether a token server may have the login of a registry.
fn may_have_login(server: &Url, registry: &Url) -> bool {
    let is_downgrade = registry.scheme() == "https" && server.scheme() != "https";
    !is_downgrade
        && belongs_to(server.host_str().unwrap_or_default(), registry.host_str().unwrap_or_default())
}

/// Whether a server is on the host of a registry, or below its domain, as `auth.docker.io` is for `index.docker.io`.
fn belongs_to(server: &str, registry: &str) -> bool {
    if server == registry {
        return true;
    }
    let is_address = registry.parse::<IpAddr>().is_ok() || registry.starts_with('[');
    // Without a dot it would be a domain of everybody, such as `com`.
    let domain = registry.split_once('.').map(|(_, domain)| domain).filter(|domain| domain.contains('.'));
    !is_address
        && domain.is_some_and(|domain| {
            let below = server.strip_suffix(domain);
            below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
        })
}

#[derive(Deserialize)]
struct TokenBody {
    token: Option<String>,
    access_token: Option<String>,
}

fn authorize(request: RequestBuilder, authorization: &Authorization) -> RequestBuilder {
    match authorization {
        Authorization::None => request,
        Authorization::Basic(user, password) => request.basic_auth(user, Some(password)),
        Authorization::Bearer(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
    }
}

/// Reads a body of at most `limit` bytes.
async fn read(mut response: Response, limit: usize) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await? {
        if body.len() + bytes.len() > limit {
            return Err(HttpError::TooLarge(limit));
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

#[derive(Deserialize)]
struct ErrorBody {
    errors: Vec<ErrorEntry>,
}

#[derive(Deserialize)]
struct ErrorEntry {
    code: String,
}

/// Fails if the server answered with an error.
async fn successful(response: Response) -> Result<Response, HttpError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = read(response, ERROR_BYTES).await.unwrap_or_default();
    let body: Option<ErrorBody> = serde_json::from_slice(&body).ok();
    let code = body.and_then(|body| body.errors.into_iter().next()).map(|entry| entry.code);
    let code = code.unwrap_or_default().chars().take(40).collect();
    Err(HttpError::Status { status, code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_for_the_registry_and_its_domain() {
        for (server, registry) in [
            ("auth.docker.io", "index.docker.io"),
            ("ghcr.io", "ghcr.io"),
            ("gitlab.example.com", "registry.example.com"),
            ("gitlab.com", "registry.gitlab.com"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            assert!(belongs_to(server, registry), "{server} {registry}");
        }
        for (server, registry) in [
            ("evil.example", "index.docker.io"),
            ("evil-docker.io", "index.docker.io"),
            ("docker.io.evil.example", "index.docker.io"),
            ("evil.io", "ghcr.io"),
            ("10.0.0.2", "10.0.0.1"),
            ("", "registry.example.com"),
        ] {
            assert!(!belongs_to(server, registry), "{server} {registry}");
        }
    }

    #[test]
    fn a_login_is_not_sent_without_tls_if_the_registry_has_it() {
        for (server, registry, may) in [
            ("https://ghcr.io/token", "https://ghcr.io/v2/", true),
            ("http://ghcr.io/token", "https://ghcr.io/v2/", false),
            ("http://127.0.0.1:5001/token", "http://127.0.0.1:5000/v2/", true),
            ("https://127.0.0.1:5001/token", "http://127.0.0.1:5000/v2/", true),
            ("https://evil.example/token", "https://ghcr.io/v2/", false),
        ] {
            let url = |text: &str| text.parse::<Url>().unwrap();
            assert_eq!(may_have_login(&url(server), &url(registry)), may, "{server} {registry}");
        }
    }
}
