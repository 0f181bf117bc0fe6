//! Checks of the host's network that need no running daemon, for `sandboxd doctor` and `sandboxd egress check`.

use std::io;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use egress::{KernelNetwork, Resolve, Resolver};
use ipnet::Ipv4Net;
use netlink::RouteSocket;
use netlink::{links, routes};
use rules::{AddressOwner, Ranges};
use serde_json::Value;

use crate::contract::NetError;
use crate::owner::OwnerThread;
use crate::settings::{HostSettings, Pool};
use crate::{forwarding, pool};

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub name: &'static str,
    pub state: FactState,
    pub message: String,
    pub remedy: Option<String>,
}

/// Whether the host is as networking needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactState {
    Good,
    Warning,
    Bad,
}

/// The closed ranges, with the block that the daemon chose last.
pub fn ranges(settings: &HostSettings) -> Ranges {
    let pool = match settings.pool {
        Pool::Block(block) => Some(block.trunc()),
        Pool::Auto => pool::stored_block(&settings.data_dir),
    };
    settings.ranges(pool)
}

/// Whose an address is. Blocks.
pub fn owner_of(address: Ipv4Addr) -> io::Result<AddressOwner> {
    let is_host = routes::is_host(&RouteSocket::open()?, address)?;
    Ok(if is_host { AddressOwner::Host } else { AddressOwner::Other })
}

/// A resolver with the daemon's settings.
pub fn resolver(settings: &HostSettings) -> Result<Arc<dyn Resolve>, NetError> {
    let fault = |error: io::Error| NetError::new("set up the resolver", error);
    let lookups = RouteSocket::open().and_then(|socket| OwnerThread::spawn("net-lookups", socket));
    let kernel_network = Arc::new(ReadOnly(lookups.map_err(fault)?));
    let resolver =
        Resolver::new(settings.resolver.clone(), ranges(settings), kernel_network).map_err(fault)?;
    Ok(Arc::new(resolver))
}

/// Looks up routes and changes nothing.
struct ReadOnly(OwnerThread<RouteSocket>);

#[async_trait]
impl KernelNetwork for ReadOnly {
    async fn open(&self, _: Ipv4Addr, _: &[Ipv4Addr], _: std::time::Duration) -> io::Result<()> {
        Ok(())
    }

    async fn close(&self, _: Ipv4Addr, _: &[Ipv4Addr]) -> io::Result<()> {
        Ok(())
    }

    async fn is_host(&self, address: Ipv4Addr) -> io::Result<bool> {
        self.0.call("look up a route", move |socket| routes::is_host(socket, address)).await
    }
}

/// All checks. Changes nothing. Blocks.
pub fn facts(settings: &HostSettings) -> Vec<Fact> {
    vec![nft(), forwarding_fact(), forwarding_policy_fact(), closed_fact(settings), pool_fact(settings)]
}

fn good(name: &'static str, message: impl Into<String>) -> Fact {
    Fact { name, state: FactState::Good, message: message.into(), remedy: None }
}

fn problem(name: &'static str, state: FactState, message: String, remedy: &str) -> Fact {
    Fact { name, state, message, remedy: Some(remedy.to_owned()) }
}

fn nft() -> Fact {
    let remedy = "install nftables, and give the daemon CAP_NET_ADMIN";
    match Command::new("nft").arg("--version").output() {
        Ok(output) if output.status.success() => match rule_set() {
            Ok(_) => good("nft", String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            Err(error) => {
                problem("nft", FactState::Bad, format!("nft cannot list the host's rules: {error}"), remedy)
            }
        },
        Ok(output) => {
            problem("nft", FactState::Bad, format!("nft --version failed with {}", output.status), remedy)
        }
        Err(error) => problem("nft", FactState::Bad, format!("nft cannot be started: {error}"), remedy),
    }
}

fn forwarding_fact() -> Fact {
    match forwarding::is_enabled() {
        Ok(true) => good("ip_forward", "net.ipv4.ip_forward is on"),
        Ok(false) => problem(
            "ip_forward",
            FactState::Warning,
            "net.ipv4.ip_forward is off; the daemon sets it when it starts".to_owned(),
            "set it permanently: sysctl -w net.ipv4.ip_forward=1, and a file in /etc/sysctl.d",
        ),
        Err(error) => problem("ip_forward", FactState::Bad, error.to_string(), "mount /proc"),
    }
}

/// Finds forward chains of other programs that drop by default: a packet has to pass all tables, so the daemon's
/// table cannot overrule them.
fn forwarding_policy_fact() -> Fact {
    let chains = match rule_set() {
        Ok(text) => dropping_chains(&text),
        Err(error) => return problem("forwarding", FactState::Warning, error.to_string(), "see nft"),
    };
    if chains.is_empty() {
        return good("forwarding", "no other rules drop forwarded packets by default");
    }
    problem(
        "forwarding",
        FactState::Warning,
        format!("forwarded packets are dropped by default in {}", chains.join(", ")),
        "let the links of sandboxes pass there; with Docker: iptables -I DOCKER-USER -i sb+ -j ACCEPT and \
         iptables -I DOCKER-USER -o sb+ -j ACCEPT",
    )
}

fn rule_set() -> io::Result<String> {
    let output = Command::new("nft").args(["-j", "list", "chains"]).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// The base chains, in nft's JSON, that drop forwarded packets by default.
fn dropping_chains(text: &str) -> Vec<String> {
    let rule_set_json: Value = serde_json::from_str(text).unwrap_or_default();
    let entries = rule_set_json.get("nftables").and_then(Value::as_array).cloned().unwrap_or_default();
    let closing = entries.iter().filter_map(|entry| {
        let chain = entry.get("chain")?;
        let is = |field: &str, value: &str| chain.get(field).and_then(Value::as_str) == Some(value);
        let text = |field: &str| chain.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        (is("hook", "forward") && is("policy", "drop") && !is("family", "ip6") && !is("family", "bridge"))
            .then(|| format!("{} {} {}", text("family"), text("table"), text("name")))
    });
    closing.collect()
}

/// Lists `egress.closed`, and ranges of `egress.allow_private` that it closes again.
fn closed_fact(settings: &HostSettings) -> Fact {
    const NAME: &str = "closed";
    let list = |ranges: &[Ipv4Net]| ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if settings.closed.is_empty() {
        return good(
            NAME,
            "egress.closed is empty; if this host is behind a NAT, list its public address there",
        );
    }
    let is_ineffective = |opened: &&Ipv4Net| settings.closed.iter().any(|closed| closed.contains(*opened));
    let ineffective: Vec<Ipv4Net> = settings.allow_private.iter().filter(is_ineffective).copied().collect();
    if ineffective.is_empty() {
        return good(NAME, format!("egress.closed closes {}", list(&settings.closed)));
    }
    problem(
        NAME,
        FactState::Warning,
        format!("egress.closed closes what egress.allow_private opens: {}", list(&ineffective)),
        "remove it from one of them",
    )
}

fn pool_fact(settings: &HostSettings) -> Fact {
    let Some(block) = ranges(settings).pool() else {
        return good("pool", "the daemon chooses a free block when it starts");
    };
    let found = RouteSocket::open().and_then(|socket| Ok((routes::all(&socket)?, links::all(&socket)?)));
    let (routes, links) = match found {
        Ok(found) => found,
        Err(error) => return problem("pool", FactState::Warning, error.to_string(), "see the daemon's log"),
    };
    let is_sandboxes =
        |index: u32| links.iter().any(|link| link.index == index && pool::is_link_of_sandboxes(&link.name));
    let other_routes: Vec<_> =
        routes.into_iter().filter(|route| !route.is_ours && !route.link.is_some_and(is_sandboxes)).collect();
    match pool::overlapping(block, &other_routes) {
        None => good("pool", format!("{block}, which no other route overlaps")),
        Some(route) => problem(
            "pool",
            FactState::Bad,
            format!("{block} overlaps the route {}", route.range),
            "set [egress] pool to a block that no route leads to",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_and_closed_ranges_are_reported() {
        let list = |ranges: &[&str]| ranges.iter().map(|range| range.parse().unwrap()).collect();
        let fact = |opened: &[&str], closed: &[&str]| {
            closed_fact(&HostSettings {
                data_dir: "/nowhere".into(),
                slots: 1,
                pool: Pool::Auto,
                resolver: egress::Upstreams::System,
                allow_private: list(opened),
                closed: list(closed),
                rate_mbit: 0,
                connections: 8192,
            })
        };
        assert_eq!(fact(&["10.1.0.0/16"], &[]).state, FactState::Good);
        let good = fact(&["10.0.0.0/8"], &["10.1.0.0/16", "203.0.113.0/24"]);
        assert_eq!(good.state, FactState::Good);
        assert!(good.message.contains("203.0.113.0/24"), "{}", good.message);
        let vain = fact(&["10.1.7.0/24", "10.2.0.0/16"], &["10.1.0.0/16"]);
        assert_eq!(vain.state, FactState::Warning);
        assert!(vain.message.ends_with("opens: 10.1.7.0/24"), "{}", vain.message);
    }

    #[test]
    fn chains_that_drop_forwarded_packets_are_found() {
        let text = r#"{"nftables": [{"metainfo": {}},
            {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "drop"}},
            {"chain": {"family": "ip6", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "drop"}},
            {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "hook": "input", "policy": "drop"}},
            {"chain": {"family": "inet", "table": "t", "name": "f", "hook": "forward", "policy": "accept"}},
            {"chain": {"family": "ip", "table": "filter", "name": "DOCKER-USER"}}]}"#;
        assert_eq!(dropping_chains(text), ["ip filter FORWARD"]);
        assert!(dropping_chains("").is_empty());
    }
}
