//! Explains what a sandbox's policy decides about a host, in plain lines. Pure: the caller has read the record and asked for the
//! name's addresses.
//!
//! [`decide`] makes every decision here, as it does for the DNS server and the proxy; this module follows what a client would do
//! (look the name up, connect) and writes the verdicts down. What depends on the moment, such as an address that a sandbox
//! learnt a minute ago, appears as a condition.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use api::{EgressDefault, EgressPolicy};
use net::verdict::{Destination, Flow, Verdict, decide};
use net::{Addresses, Reason, ResolveFailure};
use rules::{Closed, EgressRules, RESOLVER_PORTS, parse_network, plain_name};

/// The port of a target without one.
const HTTPS_PORT: u16 = 443;

/// The host and port that a sandbox would connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: Host,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// In the form of [`plain_name`].
    Name(String),
    Address(Ipv4Addr),
    Six(Ipv6Addr),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{got} is not a target; allowed: a name or an address, with an optional port, such as example.com or 192.0.2.7:8080"
)]
pub struct BadTarget {
    got: String,
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadTarget { got: rules::quoted(text) };
        if let Ok(address) = text.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
            return Ok(Self { host: Host::Six(address), port: HTTPS_PORT });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?),
            None => (text, HTTPS_PORT),
        };
        if let Ok(address) = host.parse() {
            return Ok(Self { host: Host::Address(address), port });
        }
        if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            return Ok(Self { host: Host::Six(address.parse().map_err(|_| bad())?), port });
        }
        Ok(Self { host: Host::Name(plain_name(host).ok_or_else(bad)?), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(address) => write!(f, "{address}:{}", self.port),
            Host::Six(address) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// What is known of a target.
#[derive(Debug, Clone)]
pub enum Known {
    /// The addresses of a name.
    Resolved(Result<Addresses, ResolveFailure>),
    /// Why an address is closed, if it is.
    Address(Option<Closed>),
    /// Nothing was looked up, because the verdict does not depend on it.
    Nothing,
}

/// Whether the connection would pass, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub passes: bool,
    /// The reason code that the event of this refusal has.
    pub reason: Option<&'static str>,
    /// Subject and statement.
    pub lines: Vec<(&'static str, String)>,
}

/// Whether the verdict depends on the addresses of the target's name.
pub fn wants_addresses(policy: &EgressPolicy, target: &Target) -> bool {
    match &target.host {
        Host::Name(name) => refusal(policy, Flow::Lookup(name), to(target.port)).is_none(),
        Host::Address(_) | Host::Six(_) => false,
    }
}

/// A destination whose address is open and learnt, as after a lookup.
fn to(port: u16) -> Destination {
    Destination { address: None, port, is_closed: false, is_learnt: true }
}

fn refusal(policy: &EgressPolicy, flow: Flow<'_>, to: Destination) -> Option<Reason> {
    match decide(&EgressRules::new(policy), flow, to) {
        Verdict::Refused(reason, _) => Some(reason),
        _ => None,
    }
}

pub fn explain(policy: &EgressPolicy, target: &Target, known: &Known) -> Explanation {
    let mut lines = vec![("policy", policy_line(policy, &target.host))];
    let connection = match &target.host {
        Host::Name(name) => Flow::Tls(Some(name)),
        Host::Address(_) | Host::Six(_) => Flow::Tls(None),
    };
    let addresses = addresses(target, known);
    let connect =
        |is_closed| best(policy, connection, &addresses, Destination { is_closed, ..to(target.port) });
    let refused = match (&target.host, known) {
        (Host::Six(_), _) => {
            lines.push(("address", "sandboxes have IPv4 only".to_owned()));
            connect(true)
        }
        (Host::Address(address), Known::Address(Some(closed))) => {
            lines.push(("address", format!("{address} is {closed}, which is closed to every sandbox")));
            connect(true)
        }
        (Host::Address(address), _) => unlearnt(policy, *address, target.port).or_else(|| connect(false)),
        (Host::Name(name), _) => refusal(policy, Flow::Lookup(name), to(target.port)).or_else(|| {
            let unresolved = match known {
                Known::Resolved(resolved) => address_line(&mut lines, name, resolved),
                Known::Address(_) | Known::Nothing => None,
            };
            unresolved.or_else(|| connect(false))
        }),
    };
    lines.extend(addresses.iter().filter_map(|address| network_line(policy, *address)));
    // Without a name only default allow and allowed networks pass.
    let is_direct = best(policy, Flow::Tls(None), &addresses, to(target.port)).is_none();
    match refused {
        refused if policy.default == EgressDefault::Deny && (refused.is_some() || !is_direct) => {
            strict_lines(&mut lines, policy, target, refused);
        }
        Some(reason) => lines.push(("traffic", format!("every kind is refused: {reason}"))),
        None => lines.push(("traffic", "every kind passes, without the proxy".to_owned())),
    }
    Explanation { passes: refused.is_none(), reason: refused.map(Reason::code), lines }
}

/// The addresses that a client would connect to.
fn addresses(target: &Target, known: &Known) -> Vec<Ipv4Addr> {
    match (&target.host, known) {
        (Host::Address(address), _) => vec![*address],
        (Host::Name(_), Known::Resolved(Ok(found))) => found.list.clone(),
        _ => Vec::new(),
    }
}

/// The refusal of a flow to any of these addresses: clients try all addresses of a name, so one that passes is enough.
fn best(policy: &EgressPolicy, flow: Flow<'_>, addresses: &[Ipv4Addr], to: Destination) -> Option<Reason> {
    let mut refusals =
        addresses.iter().map(|address| refusal(policy, flow, Destination { address: Some(*address), ..to }));
    let Some(first) = refusals.next() else { return refusal(policy, flow, to) };
    first.filter(|_| refusals.all(|other| other.is_some()))
}

/// The refusal of a connection to an address that the sandbox has not looked up.
fn unlearnt(policy: &EgressPolicy, address: Ipv4Addr, port: u16) -> Option<Reason> {
    refusal(policy, Flow::Opening, Destination { address: Some(address), is_learnt: false, ..to(port) })
}

/// The line about the list of networks that decides about an address.
fn network_line(policy: &EgressPolicy, address: Ipv4Addr) -> Option<(&'static str, String)> {
    let entry = |list: &[String]| {
        list.iter().find(|entry| parse_network(entry).is_some_and(|one| one.contains(&address))).cloned()
    };
    let line = match (entry(&policy.allow_networks), entry(&policy.deny_networks)) {
        (Some(entry), _) => format!("the entry '{entry}' of allowNetworks has {address}"),
        (None, Some(entry)) if policy.default == EgressDefault::Allow => {
            format!("the entry '{entry}' of denyNetworks has {address}")
        }
        _ => return None,
    };
    Some(("networks", line))
}

/// The lines about the policy.
fn policy_line(policy: &EgressPolicy, host: &Host) -> String {
    let Host::Name(name) = host else {
        return match policy.default {
            EgressDefault::Allow => "default allow: every address, except closed and denied ones".to_owned(),
            EgressDefault::Deny => {
                "default deny: names that are listed, and addresses in allowNetworks".to_owned()
            }
        };
    };
    if policy.default == EgressDefault::Allow {
        return "default allow: every name, except for closed and denied addresses".to_owned();
    }
    let alone = |entry: &String| EgressPolicy {
        allow: vec![entry.clone()],
        default: EgressDefault::Deny,
        ..EgressPolicy::default()
    };
    if let Some(entry) = policy.allow.iter().find(|entry| EgressRules::new(&alone(entry)).passes(name)) {
        return format!("default deny: the entry '{entry}' lists {name}");
    }
    let covers = |entry: &&String| {
        let parent = entry.strip_prefix('*').map(str::to_ascii_lowercase);
        parent.is_some_and(|parent| name.ends_with(&parent))
    };
    match policy.allow.iter().find(covers) {
        Some(entry) => format!(
            "default deny: the entry '{entry}' does not list {name}: a public DNS resolver must be listed by its exact name"
        ),
        None => format!("default deny: none of {} entries lists {name}", policy.allow.len()),
    }
}

fn address_line(
    lines: &mut Vec<(&'static str, String)>,
    name: &str,
    resolved: &Result<Addresses, ResolveFailure>,
) -> Option<Reason> {
    let (line, refusal) = match resolved {
        Ok(found) => {
            let list: Vec<String> = found.list.iter().map(Ipv4Addr::to_string).collect();
            let seconds = found.ttl.as_secs();
            (format!("{name} is {}, none of them closed (cached for {seconds} s)", list.join(", ")), None)
        }
        Err(failure) => (failure.to_string(), Some(failure.reason())),
    };
    lines.push(("addresses", line));
    refusal
}

/// The lines about default deny: what passes depends on what the client sends.
fn strict_lines(
    lines: &mut Vec<(&'static str, String)>,
    policy: &EgressPolicy,
    target: &Target,
    refused: Option<Reason>,
) {
    let port = target.port;
    if RESOLVER_PORTS.contains(&port) {
        lines.push((
            "port",
            format!("{port} is closed under default deny: it would reach another DNS resolver"),
        ));
    }
    let (names, addresses) = match refused {
        None => (
            "passes: the client names this host, and the proxy connects to its addresses",
            "passes after the sandbox has looked up the name, to the addresses in the answer",
        ),
        Some(Reason::NoName) => (
            "refused, unless the client names a host that is listed and has this address",
            "refused, unless the sandbox got this address in a DNS answer for a listed name",
        ),
        Some(Reason::UnknownAddress) => (
            "refused, unless the sandbox got this address in a DNS answer for a listed name, and the client names a host that has it",
            "refused, unless the sandbox got this address in a DNS answer for a listed name",
        ),
        Some(reason) => {
            lines.push(("traffic", format!("every kind is refused: {reason}")));
            return;
        }
    };
    let tcp = match refusal(policy, Flow::OtherTcp, to(port)) {
        Some(_) => format!("refused: on port {port} only TLS and HTTP are allowed"),
        None => addresses.to_owned(),
    };
    let udp = match refusal(policy, Flow::Udp, to(port)) {
        Some(_) => format!(
            "refused: on UDP port {port} the proxy cannot see names (DNS, QUIC); clients fall back to TCP"
        ),
        None => addresses.to_owned(),
    };
    lines.extend([("TLS, HTTP", names.to_owned()), ("other TCP", tcp), ("UDP", udp)]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn policy(default: EgressDefault) -> EgressPolicy {
        let allow = ["example.com", "*.example.org", "*.google"].map(str::to_owned).to_vec();
        EgressPolicy { allow, default, ..EgressPolicy::default() }
    }

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    fn found() -> Known {
        let list = vec![Ipv4Addr::new(203, 0, 113, 7)];
        Known::Resolved(Ok(Addresses { list, ttl: Duration::from_secs(60) }))
    }

    fn text(explanation: &Explanation) -> String {
        explanation.lines.iter().map(|(what, line)| format!("{what}: {line}\n")).collect()
    }

    #[test]
    fn targets_are_read() {
        let name = |name: &str, port| Target { host: Host::Name(name.to_owned()), port };
        assert_eq!(target("Example.com."), name("example.com", 443));
        assert_eq!(target("a.example:8080"), name("a.example", 8080));
        assert_eq!(target("192.0.2.7:53").host, Host::Address(Ipv4Addr::new(192, 0, 2, 7)));
        assert_eq!(target("[2001:db8::1]:80").port, 80);
        assert_eq!(target("2001:db8::1").port, 443);
        for bad in ["", "a b", "http://example.com", "example.com:0", "example.com:x", "1.2.3", "x:70000"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_policy_that_denies() {
        let strict = policy(EgressDefault::Deny);
        for (asked, known, reason, part) in [
            ("example.com", found(), None, "the entry 'example.com' lists example.com"),
            ("a.example.org:8080", found(), None, "passes after the sandbox has looked up"),
            ("example.com", found(), None, "UDP: refused: on UDP port 443 the proxy cannot see names"),
            ("example.com", found(), None, "other TCP: refused: on port 443 only TLS and HTTP"),
            ("example.com:80", found(), None, "other TCP: refused: on port 80 only TLS and HTTP"),
            ("example.com:80", found(), None, "UDP: passes after the sandbox has looked up"),
            (
                "192.0.2.7",
                Known::Address(None),
                Some("no-name"),
                "UDP: refused: on UDP port 443 the proxy cannot see names",
            ),
            ("192.0.2.7", Known::Address(None), Some("no-name"), "other TCP: refused: on port 443 only"),
            (
                "192.0.2.7:22",
                Known::Address(None),
                Some("unknown-address"),
                "UDP: refused, unless the sandbox got this address",
            ),
            (
                "192.0.2.7:8443",
                Known::Address(None),
                Some("unknown-address"),
                "TLS, HTTP: refused, unless the sandbox got this address",
            ),
            ("192.0.2.7:53", Known::Address(None), Some("port"), "traffic: every kind is refused"),
            ("example.com:853", found(), Some("port"), "853 is closed under default deny"),
            (
                "www.example.com",
                Known::Nothing,
                Some("not-allowed"),
                "none of 3 entries lists www.example.com",
            ),
            ("dns.google", Known::Nothing, Some("not-allowed"), "must be listed by its exact name"),
            ("192.0.2.7", Known::Address(None), Some("no-name"), "unless the client names a host"),
            (
                "10.0.0.1",
                Known::Address(Some(Closed::Private)),
                Some("closed-address"),
                "10.0.0.1 is a private address",
            ),
            ("[2001:db8::1]:80", Known::Nothing, Some("closed-address"), "IPv4 only"),
            (
                "example.com",
                Known::Resolved(Err(ResolveFailure::Closed(
                    Ipv4Addr::new(169, 254, 169, 254),
                    Closed::Metadata,
                ))),
                Some("closed-answer"),
                "points to 169.254.169.254",
            ),
            (
                "example.com",
                Known::Resolved(Err(ResolveFailure::NoSuchName)),
                Some("unresolved"),
                "no such name",
            ),
        ] {
            let explanation = explain(&strict, &target(asked), &known);
            assert_eq!(
                (explanation.reason, explanation.passes),
                (reason, reason.is_none()),
                "{asked}: {explanation:?}"
            );
            assert!(text(&explanation).contains(part), "{asked}: {}", text(&explanation));
        }
        assert!(!wants_addresses(&strict, &target("www.example.com")));
        assert!(wants_addresses(&strict, &target("www.example.org")));
    }

    #[test]
    fn a_policy_that_allows() {
        let open = policy(EgressDefault::Allow);
        for (asked, known, reason) in [
            ("anything.example:53", found(), None),
            ("192.0.2.7:853", Known::Address(None), None),
            ("127.0.0.1:80", Known::Address(Some(Closed::Loopback)), Some("closed-address")),
            ("x.example", Known::Resolved(Err(ResolveFailure::NoAddress)), Some("unresolved")),
        ] {
            let explanation = explain(&open, &target(asked), &known);
            assert_eq!(
                (explanation.reason, explanation.passes),
                (reason, reason.is_none()),
                "{asked}: {explanation:?}"
            );
            let text = text(&explanation);
            assert!(text.contains("default allow"), "{asked}");
            let verdict = if reason.is_none() { "passes, without the proxy" } else { "is refused: " };
            assert!(text.contains(&format!("traffic: every kind {verdict}")), "{asked}: {text}");
        }
    }

    #[test]
    fn networks_decide_before_names() {
        let with = |default| EgressPolicy {
            allow_networks: vec!["203.0.113.7".to_owned()],
            deny_networks: vec!["203.0.113.0/24".to_owned()],
            ..policy(default)
        };
        let resolved = |list: &[[u8; 4]]| {
            let list = list.iter().map(|octets| Ipv4Addr::from(*octets)).collect();
            Known::Resolved(Ok(Addresses { list, ttl: Duration::from_secs(60) }))
        };
        let (allowed, denied) = ([203, 0, 113, 7], [203, 0, 113, 8]);
        use EgressDefault::{Allow, Deny};
        for (default, asked, known, reason, part) in [
            (
                Allow,
                "203.0.113.8",
                Known::Address(None),
                Some("denied-address"),
                "'203.0.113.0/24' of denyNetworks",
            ),
            (Allow, "203.0.113.7", Known::Address(None), None, "'203.0.113.7' of allowNetworks"),
            (Allow, "198.51.100.1", Known::Address(None), None, "every kind passes"),
            (
                Allow,
                "a.example",
                resolved(&[denied]),
                Some("denied-address"),
                "of denyNetworks has 203.0.113.8",
            ),
            (Allow, "a.example", resolved(&[denied, allowed]), None, "every kind passes"),
            (Deny, "203.0.113.7:53", Known::Address(None), None, "every kind passes"),
            (Deny, "203.0.113.8", Known::Address(None), Some("no-name"), "unless the client names a host"),
            (Deny, "example.com", resolved(&[denied]), None, "passes: the client names this host"),
            (Deny, "example.com", resolved(&[allowed]), None, "every kind passes"),
            (Deny, "www.example.com", Known::Nothing, Some("not-allowed"), "none of 3 entries"),
            (
                Deny,
                "203.0.113.7",
                Known::Address(Some(Closed::Operator)),
                Some("closed-address"),
                "every kind is refused",
            ),
        ] {
            let explanation = explain(&with(default), &target(asked), &known);
            assert_eq!(explanation.reason, reason, "{asked}: {explanation:?}");
            assert!(text(&explanation).contains(part), "{asked}: {}", text(&explanation));
        }
    }
}
