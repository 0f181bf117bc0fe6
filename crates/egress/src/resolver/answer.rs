//! The usable part of an upstream's answer: the aliases from the question's name, and the records at their end. Other
//! records are dropped.

use std::net::Ipv4Addr;

use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

/// Maximum length of an alias chain.
const ALIASES_MAX: usize = 16;
/// Maximum number of records.
const RECORDS_MAX: usize = 256;
/// Maximum time to live.
const TTL_MAX: u32 = 3600;
/// Maximum time to live of a negative answer: a record that was just created must be found soon.
const NEGATIVE_TTL_MAX: u32 = 60;

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub exists: bool,
    records: Vec<Record>,
    soa: Option<Record>,
    /// In seconds.
    pub ttl: u32,
}

impl Answer {
    /// The answer from the records of an upstream: the chain from the name to records of this type.
    pub fn of(name: &Name, kind: RecordType, records: &[Record]) -> Self {
        let mut records = chain(name, kind, records);
        for record in &mut records {
            record.ttl = record.ttl.min(TTL_MAX);
        }
        let found = records.last().is_some_and(|last| last.record_type() == kind);
        let longest = if found { TTL_MAX } else { NEGATIVE_TTL_MAX };
        let ttl = records.iter().map(|record| record.ttl).min().unwrap_or(0).min(longest);
        Self { exists: true, records, soa: None, ttl }
    }

    /// A negative answer. It is cached only if the upstream sent its authority and a lifetime.
    pub fn nothing(exists: bool, soa: Option<Record>, ttl: Option<u32>) -> Self {
        let ttl = ttl.filter(|_| soa.is_some()).unwrap_or(0).min(NEGATIVE_TTL_MAX);
        Self { exists, records: Vec::new(), soa, ttl }
    }

    /// The IPv4 addresses among its records.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.records.iter().filter_map(|record| match record.data {
            RData::A(address) => Some(address.0),
            _ => None,
        })
    }

    /// The records, with their time to live reduced by the age of the answer.
    pub fn list(&self, age: u32) -> Vec<Record> {
        let aged = |record: &Record| {
            let mut record = record.clone();
            record.ttl = record.ttl.saturating_sub(age);
            record
        };
        self.records.iter().map(aged).collect()
    }

    /// The authority of a negative answer, for its remaining lifetime.
    pub fn soa(&self, age: u32) -> Option<Record> {
        let mut soa = self.soa.clone()?;
        soa.ttl = self.ttl.saturating_sub(age);
        Some(soa)
    }

    /// An estimate of the memory that it takes.
    pub fn bytes(&self) -> usize {
        let record_bytes = |record: &Record| {
            // The parsed struct is most of it; data on the heap is at most as long as on the wire.
            size_of::<Record>() + record.to_bytes().map_or(u16::MAX.into(), |bytes| bytes.len())
        };
        size_of::<Self>() + self.records.iter().chain(&self.soa).map(record_bytes).sum::<usize>()
    }
}

fn chain(name: &Name, kind: RecordType, records: &[Record]) -> Vec<Record> {
    let of_internet = || records.iter().filter(|record| record.dns_class == DNSClass::IN);
    let mut end = name;
    let mut chain = Vec::new();
    while kind != RecordType::CNAME && chain.len() < ALIASES_MAX {
        let alias = of_internet().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *end => Some((record, &target.0)),
            _ => None,
        });
        let Some((record, target)) = alias else { break };
        chain.push(record.clone());
        end = target;
    }
    let at_end = |record: &&Record| record.record_type() == kind && record.name == *end;
    chain.extend(of_internet().filter(at_end).take(RECORDS_MAX).cloned());
    chain
}

#[cfg(test)]
mod tests;
