//! `[egress]`: the network of sandboxes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Result, anyhow, ensure};
use net::{Ipv4Net, Pool, Upstreams};
use serde::{Deserialize, Serialize};

use super::declare::{shapes, table};
use super::problems::Problems;

const DNS_PORT: u16 = 53;
/// Addresses that sandboxes cannot have: network, broadcast and gateway.
const RESERVED: u64 = 3;

table! {
    /// The network of sandboxes; see [network.md](network.md). Private, link-local and metadata addresses and this host are
    /// closed under every policy, unless `allow_private` opens them. Other sandboxes are always closed.
    pub struct Egress {
        /// `"nftables"` connects sandboxes with virtual links and nftables rules, and enforces their policies, in containers
        /// and under gVisor. `"none"` gives them only loopback.
        network: NetworkKind = NetworkKind::Nftables, "`\"nftables\"` or `\"none\"`";
        /// DNS resolvers, such as `192.0.2.53` or `192.0.2.53:5353`. `"system"` uses those in `/etc/resolv.conf` of this host.
        /// With `default: deny` sandboxes reach only the resolver of the daemon; with `allow` also any public one.
        resolver: OneOrMore = OneOrMore::One("system".to_owned()), "`\"system\"`, address, or list of addresses";
        /// Private networks and addresses to open, such as `10.1.0.0/16` or `192.168.1.7`. An address of this host is opened
        /// only if the list has exactly that address, not a network around it. Policies of sandboxes still apply.
        allow_private: Vec<String>, "list of networks";
        /// Public networks and addresses to close, such as `203.0.113.0/24` or `203.0.113.7`: for example, the public address
        /// of this host behind a NAT, which the daemon cannot detect. Takes precedence over `allow_private`.
        closed: Vec<String>, "list of networks";
        /// IPv4 network for sandbox addresses, with at least `runtime.uid_slots` + 3 addresses. It must not overlap another
        /// network of this host. `"auto"` chooses one in `10.64.0.0/10` and keeps it.
        pool: String = "auto".to_owned(), "`\"auto\"` or network";
        /// Limits what each sandbox sends and, separately, what it receives. Packets above the rate are dropped; bursts of a
        /// quarter of a second pass. `0`: unlimited. A change takes effect at the next start, for running sandboxes too.
        rate_mbit: u32 = 0, "megabits a second" in 0..=100_000;
    }
}

/// How sandboxes are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// With network links and nftables rules of this host's kernel.
    Nftables,
    /// Not at all.
    None,
}

/// A text, or a list of texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

shapes! {
    Text: NetworkKind;
    TextOrTexts: OneOrMore;
}

impl Egress {
    /// `slots` is the maximum number of sandboxes.
    pub(super) fn check(&self, slots: u32) -> Result<(), Problems> {
        let networks = |key: &'static str, texts: &[String]| {
            texts.iter().map(|text| network(key, text).map(drop)).collect::<Vec<_>>()
        };
        let mut checks = vec![self.check_pool(slots)];
        checks.extend(match self.servers() {
            Ok(texts) => texts.iter().map(|text| server(text).map(drop)).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        });
        checks.extend(networks("egress.allow_private", &self.allow_private));
        checks.extend(networks("egress.closed", &self.closed));
        Problems::of(checks)
    }

    fn check_pool(&self, slots: u32) -> Result<()> {
        let Pool::Block(pool) = self.pool()? else { return Ok(()) };
        let (needed, has) = (u64::from(slots) + RESERVED, 1_u64 << (32 - pool.prefix_len()));
        ensure!(
            has >= needed,
            "egress.pool is '{}', which has {has} addresses; runtime.uid_slots = {slots} needs {needed}; allowed: /{} or wider",
            self.pool,
            32 - needed.next_power_of_two().trailing_zeros()
        );
        Ok(())
    }

    pub fn resolver(&self) -> Result<Upstreams> {
        match self.servers()? {
            [] => Ok(Upstreams::System),
            texts => texts.iter().map(|text| server(text)).collect::<Result<_>>().map(Upstreams::Listed),
        }
    }

    /// The listed servers; none if those of the system are used.
    fn servers(&self) -> Result<&[String]> {
        match &self.resolver {
            OneOrMore::One(text) if text == "system" => Ok(&[]),
            OneOrMore::One(text) => Ok(std::slice::from_ref(text)),
            OneOrMore::More(texts) => {
                ensure!(!texts.is_empty(), "egress.resolver is []; it must be \"system\" or name an address");
                Ok(texts)
            }
        }
    }

    /// Private ranges that are open.
    pub fn opened(&self) -> Result<Vec<Ipv4Net>> {
        self.allow_private.iter().map(|text| network("egress.allow_private", text)).collect()
    }

    /// Public ranges that are closed.
    pub fn closed(&self) -> Result<Vec<Ipv4Net>> {
        self.closed.iter().map(|text| network("egress.closed", text)).collect()
    }

    pub fn pool(&self) -> Result<Pool> {
        match self.pool.as_str() {
            "auto" => Ok(Pool::Auto),
            text => {
                ensure!(
                    text.contains('/'),
                    "egress.pool is '{text}'; it must be \"auto\" or an IPv4 network such as 10.200.0.0/18"
                );
                network("egress.pool", text).map(Pool::Block)
            }
        }
    }
}

fn server(text: &str) -> Result<SocketAddr> {
    let address =
        text.parse::<SocketAddr>().or_else(|_| text.parse::<IpAddr>().map(|ip| (ip, DNS_PORT).into()));
    let usable = address.ok().filter(|address| address.port() != 0 && !address.ip().is_unspecified());
    usable.ok_or_else(|| {
        anyhow!(
            "egress.resolver is '{text}'; it must be \"system\", an address such as 192.0.2.53, or one with a port such as 192.0.2.53:5353"
        )
    })
}

/// A network, or an address as a network of one address.
fn network(key: &str, text: &str) -> Result<Ipv4Net> {
    let parsed = text.parse::<Ipv4Net>().or_else(|_| text.parse::<Ipv4Addr>().map(Ipv4Net::from)).map_err(|_| {
        anyhow!("{key} has '{text}'; it must be an IPv4 network such as 10.1.0.0/16, or an address such as 192.168.1.7")
    })?;
    ensure!(
        parsed.trunc() == parsed,
        "{key} has '{text}', whose address has bits set outside its prefix; did you mean {}?",
        parsed.trunc()
    );
    Ok(parsed)
}
