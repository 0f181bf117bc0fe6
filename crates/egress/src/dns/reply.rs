//! Answers a question according to its decision.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{HINFO, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::time::Instant;

use super::PORT;
use super::decision::{Decision, decide, plain};
use super::message::{DnsReply, Question};
use crate::parts::Parts;
use crate::refusals::{Reason, RefusedTarget};
use crate::registry::Guest;
use crate::resolver::{Records, ResolveFailure};
use crate::transport::Transport;

/// Time to live, in seconds, of this server's own records.
const OWN_TTL: u32 = 60;
/// A learnt address stays open this much longer than its time to live, because clients use it until then.
const LEARNT_GRACE: Duration = Duration::from_secs(10);

/// Extended error codes (RFC 8914).
const BLOCKED: u16 = 15;
const NETWORK_ERROR: u16 = 23;

/// Answers one question of a sandbox.
pub async fn to(parts: &Parts, guest: &Arc<Guest>, question: &Question, transport: Transport) -> DnsReply {
    let policy = guest.rules();
    match decide(question, &policy, &guest.id.host_name()) {
        Decision::Refused => DnsReply::of(ResponseCode::Refused),
        Decision::NotImplemented => DnsReply::of(ResponseCode::NotImp),
        Decision::NotAllowed => refuse(parts, guest, question, transport, Reason::NotAllowed),
        Decision::Localhost => {
            let own = own_record(question, RData::A(Ipv4Addr::LOCALHOST.into()));
            DnsReply { answers: vec![own], ..DnsReply::of(ResponseCode::NoError) }
        }
        Decision::NoSuchName => negative_reply(question, ResponseCode::NXDomain),
        Decision::NoData => negative_reply(question, ResponseCode::NoError),
        Decision::Something => {
            let own = own_record(question, RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new())));
            DnsReply { answers: vec![own], ..DnsReply::of(ResponseCode::NoError) }
        }
        Decision::Addresses(name) => match parts.resolver.records(&name, RecordType::A).await {
            Ok(records) => match open(parts, guest, &name, records).await {
                Ok(Some(records)) => found(records),
                Ok(None) => refuse(parts, guest, question, transport, Reason::NotAllowed),
                Err(error) => {
                    tracing::warn!(id = %guest.id, name, %error, "cannot open addresses of a DNS answer");
                    failed()
                }
            },
            Err(failure) => unresolved(parts, guest, question, transport, &failure),
        },
        Decision::ExistenceOf(name) => match parts.resolver.records(&name, RecordType::A).await {
            Ok(records) => without_addresses(question, records),
            Err(failure) => unresolved(parts, guest, question, transport, &failure),
        },
        Decision::Records(name) => match parts.resolver.records(&name, question.kind).await {
            Ok(records) => found(records),
            Err(failure) => unresolved(parts, guest, question, transport, &failure),
        },
    }
}

/// The answer if the name could not be resolved because of an upstream failure.
pub fn failed() -> DnsReply {
    DnsReply {
        why: Some((NETWORK_ERROR, "no answer from upstream".to_owned())),
        ..DnsReply::of(ResponseCode::ServFail)
    }
}

/// NXDOMAIN instead of REFUSED: C libraries treat REFUSED as a server error, retry, and return "temporary failure",
/// which package managers retry for minutes; "no such name" is final. The extended error has the reason. There is no
/// SOA, so that clients do not cache the answer across a policy change.
fn refuse(
    parts: &Parts,
    guest: &Guest,
    question: &Question,
    transport: Transport,
    reason: Reason,
) -> DnsReply {
    let name = plain(&question.name).unwrap_or_else(|| question.name.to_ascii());
    let target = RefusedTarget { name: Some(name), address: None, port: PORT, transport };
    parts.refusals.report(&guest.id, target, reason);
    DnsReply { why: Some((BLOCKED, reason.to_string())), ..DnsReply::of(ResponseCode::NXDomain) }
}

fn unresolved(
    parts: &Parts,
    guest: &Guest,
    question: &Question,
    transport: Transport,
    failure: &ResolveFailure,
) -> DnsReply {
    match failure {
        ResolveFailure::Closed(..) => refuse(parts, guest, question, transport, failure.reason()),
        ResolveFailure::NoSuchName => negative_reply(question, ResponseCode::NXDomain),
        ResolveFailure::NoAddress => negative_reply(question, ResponseCode::NoError),
        ResolveFailure::Upstream(why) => {
            tracing::debug!(id = %guest.id, name = %question.name, %why, "a name could not be resolved");
            failed()
        }
    }
}

/// Under default deny, opens the addresses of the answer before it is sent. `None` if the policy changed while the
/// name was resolved.
async fn open(
    parts: &Parts,
    guest: &Arc<Guest>,
    name: &str,
    mut records: Records,
) -> io::Result<Option<Records>> {
    let addresses: Vec<Ipv4Addr> = records.list.iter().filter_map(address).collect();
    let policy = guest.rules();
    if !policy.passes(name) {
        return Ok(None);
    }
    if !policy.is_strict() || addresses.is_empty() {
        return Ok(Some(records));
    }
    let ttl = records.list.iter().map(|record| record.ttl).min().unwrap_or_default();
    let now = Instant::now().into_std();
    let lasting = guest.learn(name, &addresses, Duration::from_secs(ttl.into()) + LEARNT_GRACE, now);
    // The registry may be full. An address that is not in it would not be closed by a policy change.
    let learnt: Vec<Ipv4Addr> =
        addresses.into_iter().filter(|address| guest.has_learnt(name, *address, now)).collect();
    if !learnt.is_empty() {
        parts.kernel.open(guest.address, &learnt, lasting).await?;
    }
    if !is_still_allowed(parts, guest, name) {
        let closed: Vec<Ipv4Addr> =
            learnt.into_iter().filter(|address| !may_reach(parts, guest, *address)).collect();
        if !closed.is_empty() {
            parts.kernel.close(guest.address, &closed).await?;
        }
        return Ok(None);
    }
    let ttl = u32::try_from(lasting.saturating_sub(LEARNT_GRACE).as_secs()).unwrap_or(u32::MAX);
    for record in &mut records.list {
        record.ttl = record.ttl.min(ttl);
    }
    Ok(Some(records))
}

/// Whether it is the same sandbox and its policy passes the name. A policy change sets the new policy before it closes
/// addresses, so either the change or this check closes them.
fn is_still_allowed(parts: &Parts, guest: &Arc<Guest>, name: &str) -> bool {
    let current = parts.registry.find(guest.address);
    current.is_some_and(|current| Arc::ptr_eq(&current, guest)) && guest.rules().passes(name)
}

/// Whether the sandbox that has the address now may reach it for another name.
fn may_reach(parts: &Parts, guest: &Guest, address: Ipv4Addr) -> bool {
    let now = Instant::now().into_std();
    parts.registry.find(guest.address).is_some_and(|current| current.may_reach(address, now))
}

fn address(record: &Record) -> Option<Ipv4Addr> {
    match record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    }
}

fn found(records: Records) -> DnsReply {
    let code = if records.exists { ResponseCode::NoError } else { ResponseCode::NXDomain };
    DnsReply { answers: records.list, soa: records.soa, ..DnsReply::of(code) }
}

/// The aliases only, with a negative answer for the addresses.
fn without_addresses(question: &Question, mut records: Records) -> DnsReply {
    let has_addresses = records.list.iter().any(|record| address(record).is_some());
    records.list.retain(|record| address(record).is_none());
    if has_addresses {
        records.soa = Some(own_soa(&question.name));
    }
    found(records)
}

/// A negative answer of this server.
fn negative_reply(question: &Question, code: ResponseCode) -> DnsReply {
    DnsReply { soa: Some(own_soa(&question.name)), ..DnsReply::of(code) }
}

fn own_record(question: &Question, data: RData) -> Record {
    Record::from_rdata(question.name.clone(), OWN_TTL, data)
}

/// Clients cache a negative answer only with an SOA.
fn own_soa(name: &Name) -> Record {
    let nobody = Name::root;
    let soa = SOA::new(nobody(), nobody(), 1, 3600, 600, 86_400, OWN_TTL);
    Record::from_rdata(name.clone(), OWN_TTL, RData::SOA(soa))
}
