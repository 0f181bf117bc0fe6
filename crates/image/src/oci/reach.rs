//! Which addresses a pull may connect to. An image that a client of the API names must come from a public address: the service reaches
//! networks that its clients do not, such as its own loopback, private ones and the metadata service of a cloud.
//!
//! The check is made where a name becomes addresses, so the address that was checked is the one that is connected to. It also covers
//! addresses in URLs, redirects and the token server that a registry names.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{ClientBuilder, Url, redirect};
use rules::{AddressOwner, Closed, Ranges};

/// Redirects that a request follows.
const REDIRECTS: usize = 10;
/// A registry there is contacted without TLS, unless a client has named it.
const LOCALHOST: &str = "localhost";
/// Any port: nothing is sent.
const PORT: u16 = 9;

/// A server that a pull for a client does not connect to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ClosedServer {
    #[error(
        "clients may only name registries with public addresses, and {host} has {address}, {why}; to allow this registry, list it in \
         images.private_registries, or give its image a name in [images]"
    )]
    Address { host: String, address: IpAddr, why: Closed },
    #[error("registries that clients name must have TLS, and {host} has none")]
    WithoutTls { host: String },
}

/// The addresses that a pull may connect to.
#[derive(Debug, Clone)]
pub(super) enum Reach {
    Any,
    Public(Arc<Ranges>),
}

impl Reach {
    /// Applies it to all connections of an HTTP client.
    pub(super) fn limit(&self, client: ClientBuilder) -> ClientBuilder {
        let Self::Public(ranges) = self else { return client };
        let names = PublicNames(Arc::clone(ranges));
        // A proxy of the environment would resolve the names itself.
        client.no_proxy().https_only(true).redirect(redirects(Arc::clone(ranges))).dns_resolver(names)
    }

    /// Checks the address in a URL. Those of names are checked when they are resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), ClosedServer> {
        match self {
            Self::Any => Ok(()),
            Self::Public(ranges) => check_url(ranges, url),
        }
    }
}

fn redirects(ranges: Arc<Ranges>) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS {
            return attempt.error("too many redirects");
        }
        match check_url(&ranges, attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(closed) => attempt.error(closed),
        }
    })
}

fn check_url(ranges: &Ranges, url: &Url) -> Result<(), ClosedServer> {
    let host = url.host_str().unwrap_or_default();
    let address = match host {
        LOCALHOST => Some(Ipv4Addr::LOCALHOST.into()),
        _ => host.trim_start_matches('[').trim_end_matches(']').parse().ok(),
    };
    if let Some(address) = address {
        check(ranges, host, address)?;
    }
    if url.scheme() != "https" {
        return Err(ClosedServer::WithoutTls { host: host.to_owned() });
    }
    Ok(())
}

fn check(ranges: &Ranges, host: &str, address: IpAddr) -> Result<(), ClosedServer> {
    match ranges.closed_of_any_family(address, owner_of(address)) {
        None => Ok(()),
        Some(why) => Err(ClosedServer::Address { host: host.to_owned(), address, why }),
    }
}

/// Whose an address is: packets to one of this host would have it as their source, too.
fn owner_of(address: IpAddr) -> AddressOwner {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, PORT))?;
        Ok(socket.local_addr()?.ip())
    };
    // Without a route to it, it is not an own one.
    match source() {
        Ok(source) if source == address => AddressOwner::Host,
        _ => AddressOwner::Other,
    }
}

/// Resolves names, and fails if one of the addresses is closed.
struct PublicNames(Arc<Ranges>);

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        let ranges = Arc::clone(&self.0);
        Box::pin(async move {
            // The port is that of the URL.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            for address in &found {
                check(&ranges, name.as_str(), address.ip())?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The closed server that made a request fail, if that was the reason.
pub(super) fn closed_server(error: &(dyn Error + 'static)) -> Option<ClosedServer> {
    let mut error = Some(error);
    while let Some(cause) = error {
        if let Some(closed) = cause.downcast_ref::<ClosedServer>() {
            return Some(closed.clone());
        }
        error = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_found() {
        assert_eq!(owner_of(Ipv4Addr::LOCALHOST.into()), AddressOwner::Host);
        for other in ["192.0.2.1", "255.255.255.255", "2001:db8::1"] {
            assert_eq!(owner_of(other.parse().unwrap()), AddressOwner::Other, "{other}");
        }
    }

    #[test]
    fn every_form_of_a_closed_address_in_a_url_is_refused() {
        let reach = Reach::Public(Arc::new(Ranges::new(None, Vec::new())));
        for url in [
            "https://127.0.0.1/v2/",
            "http://localhost:5000/v2/",
            "https://127.1:5000/",
            "https://2130706433/",
            "https://0x7f.0.0.1/",
            "https://0177.0.0.1/",
            "https://127.0.0.1./",
            "https://[::1]:5000/",
            "https://[::ffff:10.0.0.1]/",
            "https://[::ffff:a9fe:a9fe]/latest/meta-data",
            "https://169.254.169.254/",
            "https://user:password@192.168.1.1/",
        ] {
            let refused = reach.check(&url.parse().unwrap()).expect_err(url).to_string();
            assert!(refused.contains("images.private_registries"), "{refused}");
            assert!(Reach::Any.check(&url.parse().unwrap()).is_ok());
        }
        let refused = reach.check(&"http://registry.example.com/".parse().unwrap()).unwrap_err();
        assert!(matches!(refused, ClosedServer::WithoutTls { .. }));
        for url in ["https://8.8.8.8/", "https://[2606:4700::1111]/", "https://registry.example.com/"] {
            reach.check(&url.parse().unwrap()).unwrap();
        }
    }

    #[tokio::test]
    async fn a_redirect_to_a_closed_address_is_not_followed() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ranges = Arc::new(Ranges::new(None, Vec::new()));
        let client = reqwest::Client::builder().no_proxy().redirect(redirects(ranges)).build().unwrap();
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        for target in
            ["https://169.254.169.254/latest/", "https://[::ffff:7f00:1]/", "http://registry.example.com/"]
        {
            let answering = async {
                let (mut connection, _) = server.accept().await.unwrap();
                let _ = connection.read(&mut [0; 4096]).await.unwrap();
                let answer = format!(
                    "HTTP/1.1 307 Go\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                connection.write_all(answer.as_bytes()).await.unwrap();
            };
            let request = client.get(format!("http://127.0.0.1:{port}/v2/")).send();
            let (failed, ()) = tokio::join!(request, answering);
            let failed = failed.unwrap_err();
            assert!(closed_server(&failed).is_some(), "{target}: {failed:?}");
        }
    }

    #[tokio::test]
    async fn a_name_with_a_closed_address_is_not_connected_to() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let reach = Reach::Public(Arc::new(Ranges::new(None, Vec::new())));
        let client = reach.limit(reqwest::Client::builder()).build().unwrap();
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let failed = client.get(format!("https://localhost:{port}/v2/")).send().await.unwrap_err();
        let closed = closed_server(&failed).unwrap_or_else(|| panic!("{failed:?}"));
        assert!(closed.to_string().contains("localhost has "), "{closed}");
        let accepted = tokio::time::timeout(std::time::Duration::from_millis(50), server.accept()).await;
        assert!(accepted.is_err());
    }
}
