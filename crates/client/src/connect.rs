//! Connections: where the service is, and how a socket to it comes about, with TLS or, on this machine alone, without. The
//! transport keeps a pool of what this opens.

use std::future::Future;
use std::io;
use std::net::IpAddr;
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
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Error, Result};

/// For the connection and its handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// A base URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    scheme: Scheme,
    host: String,
    port: u16,
    /// What every path begins with; empty, or with a slash in front and none behind.
    prefix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl Place {
    pub fn parse(url: &str) -> Result<Self> {
        let fault = |why: &str| {
            Error::configuration(format!(
                "the URL {url:?} {why}; it looks like https://sandboxes.example.com"
            ))
        };
        let uri: Uri = url.trim().parse().map_err(|_| fault("is no URL"))?;
        let scheme = match uri.scheme_str() {
            Some("https") => Scheme::Https,
            Some("http") => Scheme::Http,
            _ => return Err(fault("does not begin with https://")),
        };
        if uri.query().is_some() {
            return Err(fault("has a query"));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(fault("has a user in it, and the service knows only keys"));
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if scheme == Scheme::Https { 443 } else { 80 });
        let place = Self { scheme, host, port, prefix: uri.path().trim_end_matches('/').to_owned() };
        if scheme == Scheme::Http && !place.is_local() {
            return Err(fault("would send the key in the clear; plain HTTP is for this machine alone"));
        }
        Ok(place)
    }

    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Whether it can only be on this machine.
    pub fn is_local(&self) -> bool {
        let ip = self.host.parse::<IpAddr>();
        ip.map_or_else(|_| self.host == "localhost", |ip| ip.is_loopback())
    }

    /// The whole of a URL; `path` begins with a slash.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.is_tls() { "https" } else { "http" };
        let (host, port, prefix) = (&self.host, self.port, &self.prefix);
        if host.contains(':') {
            return format!("{scheme}://[{host}]:{port}{prefix}{path}");
        }
        format!("{scheme}://{host}:{port}{prefix}{path}")
    }
}

impl Place {
    /// What a request's line and its `Host` say.
    pub fn target(&self, path: &str) -> (String, String) {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        (format!("{}{path}", self.prefix), format!("{host}:{}", self.port))
    }
}

/// Opens connections. Clones share their TLS sessions.
#[derive(Clone)]
pub struct Connector {
    tls: Option<TlsConnector>,
}

impl Connector {
    pub fn new(config: Option<ClientConfig>) -> Self {
        Self { tls: config.map(|config| TlsConnector::from(Arc::new(config))) }
    }

    pub async fn open(&self, place: &Place) -> io::Result<Stream> {
        let opened = tokio::time::timeout(PATIENCE, self.handshake(place)).await;
        opened.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s")))
    }

    async fn handshake(&self, place: &Place) -> io::Result<Stream> {
        let socket = TcpStream::connect((place.host.as_str(), place.port)).await?;
        socket.set_nodelay(true)?;
        let Some(tls) = self.tls.as_ref().filter(|_| place.is_tls()) else {
            return Ok(Stream::Plain(TokioIo::new(socket)));
        };
        let name = ServerName::try_from(place.host.clone()).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(TokioIo::new(tls.connect(name, socket).await?))))
    }
}

/// How the pool asks for a connection.
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
            // The pool asks for the scheme and host of a request alone, and a request's URL came from a place.
            let place = Place::parse(&uri.to_string()).map_err(io::Error::other)?;
            connector.open(&place).await
        })
    }
}

/// A connection.
pub enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
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
        }
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, from),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_put_together() {
        for (url, shown) in [
            ("https://a.example", "https://a.example:443/v1/health"),
            ("https://a.example:8443/", "https://a.example:8443/v1/health"),
            ("https://[::1]:8443/x/", "https://[::1]:8443/x/v1/health"),
            ("http://127.0.0.1:80", "http://127.0.0.1:80/v1/health"),
        ] {
            assert_eq!(Place::parse(url).unwrap().url("/v1/health"), shown);
        }
    }

    #[test]
    fn a_key_never_goes_over_a_network_in_the_clear() {
        for url in ["http://a.example", "http://10.0.0.1", "ftp://localhost", "localhost:1", "", "https://"] {
            let error = Place::parse(url).unwrap_err();
            assert_eq!(error.code(), crate::Code::Configuration, "{url}");
        }
        assert!(Place::parse("https://u:p@a.example").is_err() && Place::parse("https://a?b").is_err());
    }
}
