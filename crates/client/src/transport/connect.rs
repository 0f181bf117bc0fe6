//! Connections to the service: URL parsing, TCP and TLS. Plain HTTP is allowed to loopback addresses only. The transport keeps a pool of
//! the connections opened here.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::transport::connection_error::UnknownHost;
use crate::{Error, Result};

/// Limit for connecting and the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A parsed base URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceUrl {
    scheme: Scheme,
    host: String,
    port: u16,
    /// Prefix of every path: empty, or with a leading and without a trailing slash.
    prefix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl ServiceUrl {
    pub fn parse(url: &str) -> Result<Self> {
        let fault = |why: &str| {
            Error::configuration(format!(
                "the URL '{}' {why}; expected a URL such as https://sandboxes.example.com",
                url.escape_debug()
            ))
        };
        let uri: Uri = url.trim().parse().map_err(|_| fault("is not a URL"))?;
        let scheme = match uri.scheme_str() {
            Some("https") => Scheme::Https,
            Some("http") => Scheme::Http,
            _ => return Err(fault("does not begin with https://")),
        };
        if uri.query().is_some() {
            return Err(fault("has a query"));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(fault("contains a user name, but the service accepts only API keys"));
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        // A port that is not a number would be ignored.
        let after_host = uri
            .authority()
            .map_or("", |authority| authority.as_str().trim_start_matches(uri.host().unwrap_or_default()));
        let port = match (uri.port_u16(), after_host) {
            (Some(port), _) => port,
            (None, "" | ":") => {
                if scheme == Scheme::Https {
                    443
                } else {
                    80
                }
            }
            (None, _) => return Err(fault("is not a URL")),
        };
        let service_url = Self { scheme, host, port, prefix: uri.path().trim_end_matches('/').to_owned() };
        if scheme == Scheme::Http && !service_url.is_local() {
            return Err(fault("would send the key unencrypted; plain HTTP is allowed only for this machine"));
        }
        Ok(service_url)
    }

    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Whether the host is this machine.
    pub fn is_local(&self) -> bool {
        let ip = self.host.parse::<IpAddr>();
        ip.map_or_else(|_| self.host == "localhost", |ip| ip.is_loopback())
    }

    /// The full URL of a path that starts with a slash.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.is_tls() { "https" } else { "http" };
        let (host, port, prefix) = (&self.host, self.port, &self.prefix);
        if host.contains(':') {
            return format!("{scheme}://[{host}]:{port}{prefix}{path}");
        }
        format!("{scheme}://{host}:{port}{prefix}{path}")
    }
}

impl ServiceUrl {
    /// The request target and the value of the `Host` header.
    pub fn target(&self, path: &str) -> (String, String) {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        (format!("{}{path}", self.prefix), format!("{host}:{}", self.port))
    }
}

/// Connects to a service in the same process.
#[derive(Clone)]
pub struct InProcess(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl InProcess {
    pub fn new(connect: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InProcess")
    }
}

/// Opens connections. Clones share TLS sessions.
#[derive(Clone)]
pub struct Connector {
    tls: Option<TlsConnector>,
    in_process: Option<InProcess>,
}

impl Connector {
    pub fn new(config: Option<ClientConfig>) -> Self {
        Self { tls: config.map(|config| TlsConnector::from(Arc::new(config))), in_process: None }
    }

    /// Opens no sockets.
    pub fn in_process(connect: InProcess) -> Self {
        Self { tls: None, in_process: Some(connect) }
    }

    pub async fn open(&self, service_url: &ServiceUrl) -> io::Result<Stream> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, self.handshake(service_url)).await;
        opened.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s")))
    }

    async fn handshake(&self, service_url: &ServiceUrl) -> io::Result<Stream> {
        if let Some(InProcess(connect)) = &self.in_process {
            return Ok(Stream::InProcess(TokioIo::new(connect())));
        }
        let found = tokio::net::lookup_host((service_url.host.as_str(), service_url.port)).await;
        let addresses: Vec<SocketAddr> =
            found.map_err(|error| io::Error::other(UnknownHost(error)))?.collect();
        let socket = TcpStream::connect(&addresses[..]).await?;
        socket.set_nodelay(true)?;
        let Some(tls) = self.tls.as_ref().filter(|_| service_url.is_tls()) else {
            return Ok(Stream::Plain(TokioIo::new(socket)));
        };
        let name = ServerName::try_from(service_url.host.clone()).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(TokioIo::new(tls.connect(name, socket).await?))))
    }
}

/// The interface through which the pool opens a connection.
impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            // The pool passes scheme and authority of a request URL, which was built from a `ServiceUrl`.
            let service_url = ServiceUrl::parse(&uri.to_string()).map_err(io::Error::other)?;
            connector.open(&service_url).await
        })
    }
}

/// An open connection.
pub enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
    InProcess(TokioIo<DuplexStream>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, to),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, to),
            Self::InProcess(stream) => Pin::new(stream).poll_read(cx, to),
        }
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, from),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, from),
            Self::InProcess(stream) => Pin::new(stream).poll_write(cx, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::InProcess(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::InProcess(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_built() {
        for (url, shown) in [
            ("https://a.example", "https://a.example:443/v1/health"),
            ("https://a.example:8443/", "https://a.example:8443/v1/health"),
            ("https://[::1]:8443/x/", "https://[::1]:8443/x/v1/health"),
            ("http://127.0.0.1:80", "http://127.0.0.1:80/v1/health"),
        ] {
            assert_eq!(ServiceUrl::parse(url).unwrap().url("/v1/health"), shown);
        }
    }

    #[test]
    fn a_key_never_goes_over_a_network_in_the_clear() {
        for url in ["http://a.example", "http://10.0.0.1", "ftp://localhost", "localhost:1", "", "https://"] {
            let error = ServiceUrl::parse(url).unwrap_err();
            assert_eq!(error.code(), crate::Code::Configuration, "{url}");
        }
        assert!(
            ServiceUrl::parse("https://u:p@a.example").is_err() && ServiceUrl::parse("https://a?b").is_err()
        );
    }
}
