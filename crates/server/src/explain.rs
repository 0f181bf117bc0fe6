//! What a sandbox's policy says of a host, and why, in plain lines. Pure: who asks has looked at records and names.
//!
//! The kernel and the proxy decide by the same rules (`rules::egress`); what only they can know, such as an address that a sandbox
//! learnt a minute ago, is said as a condition.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use api::{EgressDefault, EgressPolicy};
use net::{Addresses, Failure, Reason};
use rules::{Closed, Names, plain_name};

const WEB_PORT: u16 = 443;
/// Under a policy that denies, these would go around the sandbox's resolver, or hide its names.
const RESOLVER_PORTS: [u16; 2] = [53, 853];
const UDP_CLOSED: [u16; 3] = [53, 443, 853];
/// And these carry nothing but TLS and HTTP.
const WEB_PORTS: [u16; 2] = [80, 443];

/// What somebody wants to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: Host,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// As names are compared.
    Name(String),
    Address(Ipv4Addr),
    Six(Ipv6Addr),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{got} is no target; allowed is a name or an address, and perhaps a port, such as example.com or 192.0.2.7:8080"
)]
pub struct BadTarget {
    got: String,
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadTarget { got: rules::shown(text) };
        if let Ok(address) = text.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
            return Ok(Self { host: Host::Six(address), port: WEB_PORT });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?),
            None => (text, WEB_PORT),
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

/// What was found out about a target.
#[derive(Debug, Clone)]
pub enum Known {
    /// Of a name.
    Resolved(Result<Addresses, Failure>),
    /// Of an address: why it is closed.
    Address(Option<Closed>),
    /// Nobody was asked, for nothing depends on it.
    Nothing,
}

/// Whether it would pass, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub passes: bool,
    /// The code that an event of this refusal has.
    pub reason: Option<&'static str>,
    /// What it is about, and what is so.
    pub lines: Vec<(&'static str, String)>,
}

/// Whether names have to be asked at all.
pub fn wants_addresses(policy: &EgressPolicy, target: &Target) -> bool {
    matches!(&target.host, Host::Name(name) if Names::new(policy).passes(name))
}

pub fn explain(policy: &EgressPolicy, target: &Target, known: &Known) -> Explanation {
    let strict = policy.default == EgressDefault::Deny;
    let (by_policy, listed) = policy_line(policy, &target.host);
    let mut lines = vec![("policy", by_policy)];
    let refusal = match (&target.host, known) {
        (Host::Six(_), _) => {
            lines.push(("address", "sandboxes have IPv4 only".to_owned()));
            Some(Reason::ClosedAddress)
        }
        (Host::Address(address), Known::Address(Some(closed))) => {
            lines.push(("address", format!("{address} is {closed}, which is closed to every sandbox")));
            Some(Reason::ClosedAddress)
        }
        // Whoever has no name to ask for comes to the port first.
        (Host::Address(_), _) if strict && RESOLVER_PORTS.contains(&target.port) => Some(Reason::Port),
        (Host::Address(_), _) if strict => Some(Reason::NoName),
        (Host::Name(_), _) if !listed => Some(Reason::NotAllowed),
        (Host::Name(name), Known::Resolved(resolved)) => address_line(&mut lines, name, resolved),
        (Host::Address(_), _) | (Host::Name(_), _) => None,
    };
    let refusal = refusal.or((strict && RESOLVER_PORTS.contains(&target.port)).then_some(Reason::Port));
    if strict {
        strict_lines(&mut lines, target, refusal);
    } else {
        let verb = if refusal.is_none() { "passes" } else { "does not pass" };
        lines.push(("traffic", format!("of every kind {verb}; nothing reads it on its way")));
    }
    Explanation { passes: refusal.is_none(), reason: refusal.map(Reason::code), lines }
}

/// And whether the policy lets the name through.
fn policy_line(policy: &EgressPolicy, host: &Host) -> (String, bool) {
    let Host::Name(name) = host else {
        return match policy.default {
            EgressDefault::Allow => ("default allow: every address that is not closed".to_owned(), true),
            EgressDefault::Deny => {
                ("default deny: it goes by names, and this is an address".to_owned(), false)
            }
        };
    };
    if policy.default == EgressDefault::Allow {
        return ("default allow: every name".to_owned(), true);
    }
    let alone = |entry: &String| EgressPolicy { allow: vec![entry.clone()], default: EgressDefault::Deny };
    if let Some(entry) = policy.allow.iter().find(|entry| Names::new(&alone(entry)).passes(name)) {
        return (format!("default deny: the entry '{entry}' lists {name}"), true);
    }
    let covers = |entry: &&String| {
        let parent = entry.strip_prefix('*').map(str::to_ascii_lowercase);
        parent.is_some_and(|parent| name.ends_with(&parent))
    };
    let line = match policy.allow.iter().find(covers) {
        Some(entry) => format!(
            "default deny: the entry '{entry}' does not list {name}, which is a public resolver and has to be listed itself"
        ),
        None => format!("default deny: none of {} entries lists {name}", policy.allow.len()),
    };
    (line, false)
}

fn address_line(
    lines: &mut Vec<(&'static str, String)>,
    name: &str,
    resolved: &Result<Addresses, Failure>,
) -> Option<Reason> {
    let (line, refusal) = match resolved {
        Ok(found) => {
            let list: Vec<String> = found.list.iter().map(Ipv4Addr::to_string).collect();
            let seconds = found.ttl.as_secs();
            (format!("{name} is {}, none of them closed (kept for {seconds} s)", list.join(", ")), None)
        }
        Err(failure @ Failure::Closed(..)) => (failure.to_string(), Some(Reason::ClosedAnswer)),
        Err(failure) => (failure.to_string(), Some(Reason::Unresolved)),
    };
    lines.push(("addresses", line));
    refusal
}

fn strict_lines(lines: &mut Vec<(&'static str, String)>, target: &Target, refusal: Option<Reason>) {
    let port = target.port;
    if RESOLVER_PORTS.contains(&port) {
        lines.push((
            "port",
            format!("{port} would go around the sandbox's resolver: closed under default deny"),
        ));
    }
    match refusal {
        None => {
            lines.push((
                "TLS, HTTP",
                "passes: the name that the client gives is this one, and we connect to its addresses"
                    .to_owned(),
            ));
            let learnt =
                "passes once the sandbox has asked its resolver for the name, to the addresses it was told";
            learnt_lines(lines, port, learnt);
        }
        Some(Reason::NoName) => {
            lines.push((
                "TLS, HTTP",
                "refused, unless the client names a host that is listed and has this address".to_owned(),
            ));
            let learnt = "refused, unless the sandbox was told this address for a name that is listed";
            learnt_lines(lines, port, learnt);
        }
        Some(reason) => lines.push(("traffic", format!("of every kind is refused: {reason}"))),
    }
}

/// What goes by addresses that were learnt, and the ports where nothing does.
fn learnt_lines(lines: &mut Vec<(&'static str, String)>, port: u16, learnt: &str) {
    let tcp = match WEB_PORTS.contains(&port) {
        true => format!("refused: {port} carries nothing but TLS and HTTP"),
        false => learnt.to_owned(),
    };
    let udp = match UDP_CLOSED.contains(&port) {
        true => format!("refused: {port} hides names (DNS, QUIC); clients fall back to TCP"),
        false => learnt.to_owned(),
    };
    lines.extend([("other TCP", tcp), ("UDP", udp)]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn policy(default: EgressDefault) -> EgressPolicy {
        let allow = ["example.com", "*.example.org", "*.google"].map(str::to_owned).to_vec();
        EgressPolicy { allow, default }
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
            ("a.example.org:8080", found(), None, "passes once the sandbox has asked"),
            ("example.com", found(), None, "UDP: refused: 443 hides names"),
            ("example.com", found(), None, "other TCP: refused: 443 carries nothing but"),
            ("example.com:80", found(), None, "other TCP: refused: 80 carries nothing but"),
            ("example.com:80", found(), None, "UDP: passes once the sandbox has asked"),
            ("192.0.2.7", Known::Address(None), Some("no-name"), "UDP: refused: 443 hides names"),
            ("192.0.2.7", Known::Address(None), Some("no-name"), "other TCP: refused: 443 carries"),
            (
                "192.0.2.7:22",
                Known::Address(None),
                Some("no-name"),
                "UDP: refused, unless the sandbox was told",
            ),
            ("192.0.2.7:53", Known::Address(None), Some("port"), "traffic: of every kind is refused"),
            ("example.com:853", found(), Some("port"), "853 would go around"),
            (
                "www.example.com",
                Known::Nothing,
                Some("not-allowed"),
                "none of 3 entries lists www.example.com",
            ),
            ("dns.google", Known::Nothing, Some("not-allowed"), "has to be listed itself"),
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
                Known::Resolved(Err(Failure::Closed(Ipv4Addr::new(169, 254, 169, 254), Closed::Metadata))),
                Some("closed-answer"),
                "points to 169.254.169.254",
            ),
            ("example.com", Known::Resolved(Err(Failure::NoSuchName)), Some("unresolved"), "no such name"),
        ] {
            let told = explain(&strict, &target(asked), &known);
            assert_eq!((told.reason, told.passes), (reason, reason.is_none()), "{asked}: {told:?}");
            assert!(text(&told).contains(part), "{asked}: {}", text(&told));
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
            ("x.example", Known::Resolved(Err(Failure::NoAddress)), Some("unresolved")),
        ] {
            let told = explain(&open, &target(asked), &known);
            assert_eq!((told.reason, told.passes), (reason, reason.is_none()), "{asked}: {told:?}");
            assert!(text(&told).contains("default allow"), "{asked}");
        }
    }
}
