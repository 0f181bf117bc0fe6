//! The lists of IPv4 networks in a policy.

use std::net::Ipv4Addr;

use api::{EgressDefault, EgressPolicy};
use ipnet::Ipv4Net;

const EVERYTHING: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);

/// What a policy decides by the address of a destination, if the address is not closed to every sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressVerdict {
    /// It passes, whatever its port, protocol and name.
    Pass,
    Refuse,
    /// Under default deny: the name decides.
    ByName,
}

/// The networks that change the verdict of the policy's default. The kernel has the same lists, so each list is merged:
/// entries in one of its sets must not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    /// Take precedence over `denied`.
    pub allowed: Vec<Ipv4Net>,
    /// Empty under default deny.
    pub denied: Vec<Ipv4Net>,
}

impl Networks {
    /// The lists of a policy. Of texts that are no network, an allowed one is left out, and a denied one denies everything.
    pub fn new(policy: &EgressPolicy) -> Self {
        let allowed = || merged(policy.allow_networks.iter().filter_map(|entry| parse_network(entry)));
        // Entries are checked before they are stored. One that cannot be read must not open anything.
        let denied =
            || merged(policy.deny_networks.iter().map(|entry| parse_network(entry).unwrap_or(EVERYTHING)));
        match policy.default {
            EgressDefault::Deny => Self { allowed: allowed(), denied: Vec::new() },
            // Everything passes, so there is nothing to allow.
            EgressDefault::Allow if policy.deny_networks.is_empty() => Self::default(),
            EgressDefault::Allow => Self { allowed: allowed(), denied: denied() },
        }
    }

    /// Whether the policy has no lists, so that names alone decide.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.denied.is_empty()
    }

    pub(super) fn verdict(&self, default: EgressDefault, address: Ipv4Addr) -> AddressVerdict {
        let has = |list: &[Ipv4Net]| list.iter().any(|network| network.contains(&address));
        match default {
            _ if has(&self.allowed) => AddressVerdict::Pass,
            _ if has(&self.denied) => AddressVerdict::Refuse,
            EgressDefault::Allow => AddressVerdict::Pass,
            EgressDefault::Deny => AddressVerdict::ByName,
        }
    }
}

fn merged(networks: impl Iterator<Item = Ipv4Net>) -> Vec<Ipv4Net> {
    Ipv4Net::aggregate(&networks.collect())
}

/// Parses an address, with a prefix length or without. Bits after the prefix are cleared.
pub fn parse_network(text: &str) -> Option<Ipv4Net> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, parse_prefix(prefix)?),
        None => (text, 32),
    };
    Some(Ipv4Net::new(address.parse().ok()?, prefix).ok()?.trunc())
}

/// Refuses forms that other programs may read differently, such as `+8` and `08`.
fn parse_prefix(text: &str) -> Option<u8> {
    let prefix: u8 = text.parse().ok()?;
    (prefix.to_string() == text).then_some(prefix)
}

/// The canonical form: a single address has no prefix length.
pub fn network_text(network: &Ipv4Net) -> String {
    if network.prefix_len() == 32 { network.addr().to_string() } else { network.trunc().to_string() }
}
