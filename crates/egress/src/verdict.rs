//! The egress verdict: whether a sandbox may reach a destination.
//!
//! The DNS server, the proxy and `sandboxd egress check` all call [`decide`], so they cannot disagree. The kernel decides about
//! datagrams and about [`Flow::Opening`] by the same ports (`rules::UDP_PORTS_CLOSED`, `rules::WEB_PORTS`, `rules::RESOLVER_PORTS`), by
//! the same lists of networks (`rules::Networks`) and by the addresses that DNS opened. It decides about all traffic under default
//! allow, and to allowed networks under default deny.

use std::net::Ipv4Addr;

use rules::{AddressVerdict, EgressRules, RESOLVER_PORTS, UDP_PORTS_CLOSED, WEB_PORTS};

use crate::refusals::Reason;

/// A flow of a sandbox, as far as it is known. Names are in the form of `rules::plain_name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow<'a> {
    /// It asks the DNS server for a name.
    Lookup(&'a str),
    /// It opens a TCP connection and has sent nothing yet.
    Opening,
    /// It sent a ClientHello, with the server name in it.
    Tls(Option<&'a str>),
    /// It sent what begins like HTTP: HTTP/1 or the preface of HTTP/2.
    Http,
    /// It sent an HTTP request, for this host.
    Request(&'a str),
    /// It sent something else on a TCP connection.
    OtherTcp,
    /// It sent too little to tell what it is.
    Silent,
    /// It sent what begins like TLS or HTTP and is invalid.
    Malformed,
    /// It sends a datagram.
    Udp,
}

/// Where a flow goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// `None` if it is not known: then no list of networks has it.
    pub address: Option<Ipv4Addr>,
    pub port: u16,
    /// Whether the address is closed to every sandbox.
    pub is_closed: bool,
    /// Whether the sandbox was given the address for a name that passes, and the answer has not expired.
    pub is_learnt: bool,
}

/// What happens to a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It passes to its destination.
    Pass,
    /// It passes to its destination unless it turns into an HTTP request.
    PassUnlessHttp,
    /// It passes to an address that the daemon finds for this name: see [`connect_address`].
    PassByName(String),
    /// Each request is decided as a [`Flow::Request`].
    ByRequest,
    /// With the name that the client gave.
    Refused(Reason, Option<String>),
}

/// Decides about one flow. `to` is ignored for a lookup.
pub fn decide(policy: &EgressRules, flow: Flow<'_>, to: Destination) -> Verdict {
    if let Flow::Lookup(name) = flow {
        return by_name(policy, name);
    }
    let refused = |reason| Verdict::Refused(reason, None);
    if to.is_closed {
        return refused(Reason::ClosedAddress);
    }
    match (to.address.map(|address| policy.address_verdict(address)), policy.is_strict()) {
        (Some(AddressVerdict::Refuse), _) => return refused(Reason::DeniedAddress),
        (Some(AddressVerdict::Pass), _) | (None, false) => return Verdict::Pass,
        (Some(AddressVerdict::ByName), _) | (None, true) => {}
    }
    let is_web = WEB_PORTS.contains(&to.port);
    match flow {
        Flow::Udp if UDP_PORTS_CLOSED.contains(&to.port) => refused(Reason::Port),
        Flow::Udp if to.is_learnt => Verdict::Pass,
        Flow::Udp => refused(Reason::UnknownAddress),
        _ if RESOLVER_PORTS.contains(&to.port) => refused(Reason::Port),
        Flow::Opening if is_web || to.is_learnt => Verdict::Pass,
        Flow::Opening => refused(Reason::UnknownAddress),
        Flow::Lookup(name) | Flow::Request(name) | Flow::Tls(Some(name)) => by_name(policy, name),
        Flow::Tls(None) => refused(Reason::NoName),
        Flow::Http => Verdict::ByRequest,
        Flow::Malformed => refused(Reason::Malformed),
        Flow::OtherTcp | Flow::Silent if is_web => refused(Reason::NoName),
        Flow::OtherTcp if to.is_learnt => Verdict::PassUnlessHttp,
        Flow::OtherTcp | Flow::Silent => refused(Reason::UnknownAddress),
    }
}

fn by_name(policy: &EgressRules, name: &str) -> Verdict {
    match policy.passes(name) {
        true => Verdict::PassByName(name.to_owned()),
        false => Verdict::Refused(Reason::NotAllowed, Some(name.to_owned())),
    }
}

/// Whether the proxy may wait for the server to speak first. On other ports only TLS and HTTP pass, where the client does.
pub fn may_server_speak_first(port: u16) -> bool {
    !WEB_PORTS.contains(&port)
}

/// The address that a connection by name goes to: the one that the client chose, if the name has it now; otherwise one that the
/// name has now, if the client was told the address that it chose; otherwise none.
pub fn connect_address(
    chosen: Ipv4Addr,
    was_answered: bool,
    current: &[Ipv4Addr],
) -> Result<Ipv4Addr, Reason> {
    if current.contains(&chosen) {
        return Ok(chosen);
    }
    if was_answered { current.first().copied().ok_or(Reason::Unresolved) } else { Err(Reason::WrongAddress) }
}

#[cfg(test)]
mod tests;
