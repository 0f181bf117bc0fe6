//! Decides what to do with a question, by the question and the policy alone.

use hickory_proto::rr::{DNSClass, Name, RecordType};
use rules::{EgressRules, plain_name};

use super::message::Question;
use crate::verdict::{Destination, Flow, Verdict, decide as decide_flow};

/// What a question is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// An operation that this server does not offer.
    Refused,
    NotImplemented,
    /// The policy does not list the name.
    NotAllowed,
    /// The loopback address.
    Localhost,
    NoSuchName,
    NoData,
    /// A minimal answer to ANY (RFC 8482).
    Something,
    /// The addresses of this name, which are then learnt.
    Addresses(String),
    /// No records, if the name exists: records of this type would bypass the policy or point to unreachable
    /// destinations.
    ExistenceOf(String),
    Records(String),
}

/// A lookup has no destination of its own.
const NO_DESTINATION: Destination =
    Destination { address: None, port: 0, is_closed: false, is_learnt: false };
/// Firefox looks this name up before it uses a resolver of its own.
const NO_OTHER_RESOLVER: &str = "use-application-dns.net";

/// `own` is the host name of the sandbox.
pub fn decide(question: &Question, policy: &EgressRules, own: &str) -> Decision {
    if question.class != DNSClass::IN {
        return Decision::Refused;
    }
    match u16::from(question.kind) {
        0 | 41 | 128..=250 | 253 | 254 => return Decision::NotImplemented,
        251 | 252 => return Decision::Refused,
        _ => {}
    }
    let Some(name) = plain(&question.name) else {
        return match question.name.is_root() {
            true => Decision::NoData,
            false if policy.is_strict() => Decision::NotAllowed,
            // The labels are not those of a host name.
            false => Decision::NoSuchName,
        };
    };
    if is_at_or_below(&name, "localhost") || name == own {
        return match question.kind {
            RecordType::A => Decision::Localhost,
            _ => Decision::NoData,
        };
    }
    // Reverse lookups would reveal names of the operator's network.
    if is_at_or_below(&name, "arpa") || name == NO_OTHER_RESOLVER {
        return Decision::NoSuchName;
    }
    if let Verdict::Refused(..) = decide_flow(policy, Flow::Lookup(&name), NO_DESTINATION) {
        return Decision::NotAllowed;
    }
    match question.kind {
        RecordType::ANY => Decision::Something,
        RecordType::A => Decision::Addresses(name),
        // Sandboxes have no IPv6. A service binding can hide the name inside TLS, or name other addresses and HTTP/3.
        RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => Decision::ExistenceOf(name),
        _ => Decision::Records(name),
    }
}

/// A name in the form of policies. Built from the labels: in hickory's text a dot may be part of a label.
pub fn plain(name: &Name) -> Option<String> {
    let labels: Vec<&str> = name.iter().map(std::str::from_utf8).collect::<Result<_, _>>().ok()?;
    if labels.iter().any(|label| label.contains('.')) {
        return None;
    }
    plain_name(&labels.join("."))
}

fn is_at_or_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

#[cfg(test)]
mod tests;
