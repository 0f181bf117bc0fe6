//! What becomes of a question, by the question and the policy alone.

use hickory_proto::rr::{DNSClass, Name, RecordType};
use rules::{Names, plain_name};

use super::message::Question;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Asks for what this server does not do for anybody.
    Refused,
    NotImplemented,
    /// The policy does not pass the name.
    NotAllowed,
    /// This machine, to itself.
    Localhost,
    NoSuchName,
    NothingOfThatType,
    /// To a question for everything, something (RFC 8482).
    Something,
    /// Its addresses are looked up and learnt.
    Addresses(String),
    /// Nothing, if the name exists: what the type says would lead around the policy or to where no sandbox gets.
    ExistenceOf(String),
    Records(String),
}

/// Firefox asks for it before it turns to a resolver of its own.
const NO_OTHER_RESOLVER: &str = "use-application-dns.net";

/// `own` is the host name of whoever asks.
pub fn decide(question: &Question, policy: &Names, own: &str) -> Decision {
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
            true => Decision::NothingOfThatType,
            false if policy.is_strict() => Decision::NotAllowed,
            // It is none that anything in the world has.
            false => Decision::NoSuchName,
        };
    };
    if is_at_or_below(&name, "localhost") || name == own {
        return match question.kind {
            RecordType::A => Decision::Localhost,
            _ => Decision::NothingOfThatType,
        };
    }
    // Who has an address is nobody's business in a sandbox, and what is inside of the operator's network is known there.
    if is_at_or_below(&name, "arpa") || name == NO_OTHER_RESOLVER {
        return Decision::NoSuchName;
    }
    if !policy.passes(&name) {
        return Decision::NotAllowed;
    }
    match question.kind {
        RecordType::ANY => Decision::Something,
        RecordType::A => Decision::Addresses(name),
        // No IPv6 in sandboxes; and a service binding may hide the name inside of TLS, or name other addresses and HTTP/3.
        RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => Decision::ExistenceOf(name),
        _ => Decision::Records(name),
    }
}

/// A name as policies have it. Made of the labels and not of hickory's text, in which a dot may be part of a label.
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
