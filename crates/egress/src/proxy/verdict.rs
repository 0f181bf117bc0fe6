//! What is decided about a connection, by what it said. Pure.

use std::net::Ipv4Addr;

use rules::Names;

use super::sniff::First;
use crate::refusals::Reason;

/// Ports that would go around the sandbox's resolver: DNS, and DNS inside TLS.
const RESOLVER_PORTS: [u16; 2] = [53, 853];
/// Ports that carry nothing but HTTP and TLS.
const WEB_PORTS: [u16; 2] = [80, 443];

/// What a connection is, once it has said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The addresses of this name are to be found out; then [`destination`] tells.
    Named(String),
    /// To where the client wanted to go, whatever it says.
    Straight,
    /// The same, as long as it does not turn into a request of HTTP.
    Watched,
    /// Reads as HTTP; its first request is judged as [`named`].
    Http,
    Refused(Reason, Option<String>),
}

/// What can be said before the client has said anything.
pub fn beforehand(names: &Names, port: u16) -> Option<Reason> {
    (names.is_strict() && RESOLVER_PORTS.contains(&port)).then_some(Reason::Port)
}

/// Whether a server may be let to speak first.
pub fn may_wait_for_server(port: u16) -> bool {
    !WEB_PORTS.contains(&port)
}

/// Judges what a client began with. `known`: its destination is one that an allowed name was answered with.
pub fn judge(names: &Names, first: &First, port: u16, known: bool) -> Verdict {
    if !names.is_strict() {
        // It came by the policy of a moment ago; under this one nobody would ask.
        return Verdict::Straight;
    }
    match first {
        First::Tls { name } => named(names, name.as_deref()),
        First::Http | First::H2c => Verdict::Http,
        First::Malformed => Verdict::Refused(Reason::Malformed, None),
        First::NeedMore(_) | First::Other if WEB_PORTS.contains(&port) => {
            Verdict::Refused(Reason::NoName, None)
        }
        First::Other if known => Verdict::Watched,
        First::Other | First::NeedMore(_) => Verdict::Refused(Reason::UnknownAddress, None),
    }
}

/// Judges a name.
pub fn named(names: &Names, name: Option<&str>) -> Verdict {
    match name {
        None => Verdict::Refused(Reason::NoName, None),
        Some(name) if names.passes(name) => Verdict::Named(name.to_owned()),
        Some(name) => Verdict::Refused(Reason::NotAllowed, Some(name.to_owned())),
    }
}

/// Where a connection goes whose name passes: to the address that its client chose, if the name has it now; to one that the
/// name has now, if the client was once told that the name has the one it chose; nowhere otherwise.
pub fn destination(wanted: Ipv4Addr, was_told: bool, current: &[Ipv4Addr]) -> Result<Ipv4Addr, Reason> {
    if current.contains(&wanted) {
        return Ok(wanted);
    }
    if was_told { current.first().copied().ok_or(Reason::Unresolved) } else { Err(Reason::WrongAddress) }
}

#[cfg(test)]
mod tests;
