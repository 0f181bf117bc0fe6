//! Egress rules: which names and addresses a policy allows, and which addresses are closed under every policy.

mod ipv6;
mod networks;

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use api::bounds::{DOMAIN_BYTES, LABEL_BYTES};
use api::{EgressDefault, EgressPolicy};
use ipnet::Ipv4Net;

pub use networks::{AddressVerdict, Networks, network_text, parse_network};

/// Ports of other resolvers: DNS, and DNS inside TLS. They would go around the sandbox's own resolver, so they are closed under
/// default deny.
pub const RESOLVER_PORTS: [u16; 2] = [53, 853];
/// TCP ports where only TLS and HTTP are accepted under default deny.
pub const WEB_PORTS: [u16; 2] = [80, 443];
/// UDP ports that are closed under default deny: those of resolvers, and QUIC, which hides its names.
pub const UDP_PORTS_CLOSED: [u16; 3] = [53, 443, 853];

/// Ranges that no policy opens; the first match gives the reason. The documentation ranges (TEST-NET) are not among them:
/// nothing private uses them.
const CLOSED: [(Ipv4Net, Closed); 13] = [
    (net([0, 0, 0, 0], 8), Closed::ThisNetwork),
    (net([10, 0, 0, 0], 8), Closed::Private),
    (net([100, 64, 0, 0], 10), Closed::Carrier),
    (net([127, 0, 0, 0], 8), Closed::Loopback),
    // Azure's, inside a public range.
    (net([168, 63, 129, 16], 32), Closed::Metadata),
    (net([169, 254, 169, 254], 32), Closed::Metadata),
    (net([169, 254, 0, 0], 16), Closed::LinkLocal),
    (net([172, 16, 0, 0], 12), Closed::Private),
    (net([192, 0, 0, 0], 24), Closed::Reserved),
    (net([192, 168, 0, 0], 16), Closed::Private),
    (net([198, 18, 0, 0], 15), Closed::Reserved),
    (net([224, 0, 0, 0], 4), Closed::Multicast),
    (net([240, 0, 0, 0], 4), Closed::Reserved),
];

const fn net(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]), prefix)
}

/// Why an address is closed under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Closed {
    ThisNetwork,
    Private,
    Carrier,
    Loopback,
    Metadata,
    LinkLocal,
    Reserved,
    Multicast,
    /// In the pool of sandboxes' addresses.
    Sandboxes,
    /// An address of the host itself, in whatever range.
    Host,
    /// In a range that the operator closed.
    Operator,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ThisNetwork => "an address of \"this network\" (0.0.0.0/8)",
            Self::Private => "a private address",
            Self::Carrier => "a carrier-grade NAT address (100.64.0.0/10)",
            Self::Loopback => "a loopback address",
            Self::Metadata => "the address of a cloud metadata service",
            Self::LinkLocal => "a link-local address",
            Self::Reserved => "a reserved address",
            Self::Multicast => "a multicast address",
            Self::Sandboxes => "an address of the sandbox network",
            Self::Host => "an address of the host itself",
            Self::Operator => "an address that the operator of this host closed",
        })
    }
}

/// Whose an address is, by the routes of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressOwner {
    /// It is one of the host's own.
    Host,
    Other,
}

/// The closed addresses of this host: the fixed ranges and the pool, without what the operator opened, and what the
/// operator closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    pool: Option<Ipv4Net>,
    opened: Vec<Ipv4Net>,
    closed: Vec<Ipv4Net>,
}

impl Ranges {
    /// `pool` has the addresses of the sandboxes; `opened` are ranges that the operator allows although they are not public.
    pub fn new(pool: Option<Ipv4Net>, opened: Vec<Ipv4Net>) -> Self {
        Self { pool, opened, closed: Vec::new() }
    }

    /// Adds ranges that the operator closes. They take precedence over opened ones.
    #[must_use]
    pub fn closing(self, closed: Vec<Ipv4Net>) -> Self {
        Self { closed, ..self }
    }

    /// The fixed ranges, including parts that the operator opened.
    pub fn fixed() -> impl Iterator<Item = Ipv4Net> {
        CLOSED.iter().map(|(range, _)| *range)
    }

    /// The addresses of the sandboxes.
    pub fn pool(&self) -> Option<Ipv4Net> {
        self.pool
    }

    /// The ranges that the operator allows, for the packet filter.
    pub fn opened(&self) -> &[Ipv4Net] {
        &self.opened
    }

    /// The ranges that the operator closes, for the packet filter.
    pub fn closed_by_operator(&self) -> &[Ipv4Net] {
        &self.closed
    }

    /// As [`Self::closed`], of either family. Sandboxes have no IPv6; what the host does for their owners may use it.
    pub fn closed_of_any_family(&self, address: IpAddr, owner: AddressOwner) -> Option<Closed> {
        match address {
            IpAddr::V4(address) => self.closed(address, owner),
            IpAddr::V6(address) => match ipv6::classify(address) {
                ipv6::Class::Contains(inner) => self.closed(inner, owner),
                ipv6::Class::Closed(why) => Some(why),
                ipv6::Class::Public => (owner == AddressOwner::Host).then_some(Closed::Host),
            },
        }
    }

    /// Why an address is closed, if it is. One of the host's own is opened only by an entry for exactly that address: a range
    /// means the network around the host, not the host.
    pub fn closed(&self, address: Ipv4Addr, owner: AddressOwner) -> Option<Closed> {
        if self.pool.is_some_and(|pool| pool.contains(&address)) {
            return Some(Closed::Sandboxes);
        }
        if self.closed.iter().any(|range| range.contains(&address)) {
            return Some(Closed::Operator);
        }
        if owner == AddressOwner::Host {
            let named = self.opened.iter().any(|range| range.prefix_len() == 32 && range.addr() == address);
            return (!named).then_some(Closed::Host);
        }
        if self.opened.iter().any(|range| range.contains(&address)) {
            return None;
        }
        CLOSED.iter().find(|(range, _)| range.contains(&address)).map(|(_, why)| *why)
    }
}

/// A policy, prepared for frequent lookups. The ranges that are closed under every policy ([`Ranges`]) take precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRules {
    default: EgressDefault,
    exact: HashSet<String>,
    /// For `*.example.com`: `example.com`.
    below: HashSet<String>,
    networks: Networks,
}

impl EgressRules {
    /// Prepares the names of a policy for lookups.
    pub fn new(policy: &EgressPolicy) -> Self {
        let (mut exact, mut below) = (HashSet::new(), HashSet::new());
        for entry in &policy.allow {
            let entry = entry.to_ascii_lowercase();
            match entry.strip_prefix("*.") {
                Some(parent) => below.insert(parent.to_owned()),
                None => exact.insert(entry),
            };
        }
        Self { default: policy.default, exact, below, networks: Networks::new(policy) }
    }

    /// Whether names and addresses that the policy does not list are refused.
    pub fn is_strict(&self) -> bool {
        self.default == EgressDefault::Deny
    }

    /// Whether the policy passes a name in the form of [`plain_name`].
    pub fn passes(&self, name: &str) -> bool {
        !self.is_strict() || self.exact.contains(name) || self.is_below(name)
    }

    /// What the policy decides by the address alone.
    pub fn address_verdict(&self, address: Ipv4Addr) -> AddressVerdict {
        self.networks.verdict(self.default, address)
    }

    /// A public resolver (DNS over HTTPS or TLS) passes only by its exact name: a wildcard that covers one is not meant to
    /// allow a way around the sandbox's own resolver.
    fn is_below(&self, name: &str) -> bool {
        !is_public_resolver(name) && parents(name).any(|parent| self.below.contains(parent))
    }
}

/// `a.b.c` has the parents `b.c` and `c`.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(dot, _)| &name[dot + 1..])
}

const PUBLIC_RESOLVERS: [&str; 14] = [
    "1dot1dot1dot1.cloudflare-dns.com",
    "chrome.cloudflare-dns.com",
    "cloudflare-dns.com",
    "dns.adguard-dns.com",
    "dns.alidns.com",
    "dns.google",
    "dns.google.com",
    "dns.nextdns.io",
    "dns.quad9.net",
    "dns10.quad9.net",
    "dns9.quad9.net",
    "doh.opendns.com",
    "mozilla.cloudflare-dns.com",
    "one.one.one.one",
];

fn is_public_resolver(name: &str) -> bool {
    PUBLIC_RESOLVERS.binary_search(&name).is_ok()
}

/// The canonical form of a host name: lower case, without the final dot. `None` if it is not a host name, for instance an
/// address.
pub fn plain_name(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or_default();
    let good = name.len() <= DOMAIN_BYTES
        && name.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit());
    good.then(|| name.to_ascii_lowercase())
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests;
