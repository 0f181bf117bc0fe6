//! The reverse proxies that the operator named, and what the service takes from them.
//!
//! `X-Forwarded-For`: the client's address, for the log and for the program behind a port. No access depends on it.
//! `X-Forwarded-Proto`: the scheme that the browser used. The cookie check of private ports compares the browser's `Origin` with
//! it (`relay::origin`), and the redirect after a token in the address uses it, so a trusted proxy must set it or remove it.
//! Trusted proxies are also exempt from the connection limits per source address. Any client can send these headers, so they
//! count only when a named proxy sent them.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The most proxies in a row that one header can name.
const MAX_HOPS: usize = 32;

/// Proxies whose forwarding headers count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
}

/// A configured text that is neither an address nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not an address or a network; allowed: addresses such as '10.0.0.7' and networks such as '10.0.0.0/8' or 'fd00::/8'"
)]
pub struct BadProxy(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    start: u128,
    mask: u128,
}

impl TrustedProxies {
    /// Addresses and networks as the configuration has them.
    pub fn parse(texts: &[String]) -> Result<Self, BadProxy> {
        let network = |text: &String| Network::parse(text).ok_or_else(|| BadProxy(text.clone()));
        Ok(Self { networks: texts.iter().map(network).collect::<Result<_, _>>()? })
    }

    /// Whether an address is one of the proxies.
    pub fn holds(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        self.networks.iter().any(|network| bits & network.mask == network.start)
    }

    /// The nearest address that is not one of the proxies.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        let hops = headers.get_all(FORWARDED_FOR).iter().rev();
        // A value that is not text holds no address.
        let mut hops = hops.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
        for _ in 0..MAX_HOPS {
            if !self.holds(client) {
                break;
            }
            match hops.next().map(|hop| hop.trim().parse()) {
                Some(Ok(address)) => client = address,
                // Nothing vouches for the hops before one that is not an address.
                Some(Err(_)) | None => break,
            }
        }
        client
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, n)| (a, Some(n)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length: u32 = length.map_or(Some(most), |length| length.parse().ok())?;
        let free = most.checked_sub(length)?;
        let mask = u128::MAX.checked_shl(free).unwrap_or(0);
        Some(Self { start: bits(address) & mask, mask })
    }
}

/// IPv4 addresses as IPv6-mapped ones, which is how a dual-stack socket shows them.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn proxies(texts: &[&str]) -> Result<TrustedProxies, BadProxy> {
        TrustedProxies::parse(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    fn client(trusted: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        proxies(trusted).unwrap().client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn only_trusted_proxies_set_the_client_address() {
        assert_eq!(client(&[], "10.0.0.1", &["1.2.3.4"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.2"], "10.0.0.1", &["1.2.3.4"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/24"], "10.0.0.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.0/24"], "::ffff:10.0.0.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&["fd00::/8"], "fd12::1", &["2001:db8::1"]), "2001:db8::1");
    }

    #[test]
    fn forwarding_headers_of_clients_are_ignored() {
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6, 1.2.3.4, 10.0.0.9"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6", "1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6, junk, 10.0.0.9"]), "10.0.0.9");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6", "\u{e9}", "10.0.0.9"]), "10.0.0.9");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn texts_that_are_no_network_are_refused_by_name() {
        for bad in ["", "here", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/-1", "10.0.0.0/"] {
            let error = proxies(&[bad]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{bad}' is not an address")), "{error}");
        }
        assert_eq!(client(&["0.0.0.0/0"], "9.9.9.9", &["8.8.8.8, fd00::1"]), "fd00::1");
        assert_eq!(client(&["::/0"], "fd00::2", &["fd00::1"]), "fd00::1");
    }
}
