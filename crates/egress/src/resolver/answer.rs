//! What of an upstream's answer counts: the aliases from the name that was asked for, and the records at their end. Whatever else
//! an upstream adds is not passed on.

use std::net::Ipv4Addr;

use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

/// Aliases that are followed in one answer.
const ALIASES_MAX: usize = 16;
/// Records at the end of them that are passed on.
const RECORDS_MAX: usize = 256;
/// Nothing is believed for longer.
const TTL_MAX: u32 = 3600;
/// Nor that there is nothing: what was just set up is to be found soon.
const NEGATIVE_TTL_MAX: u32 = 60;

/// One answer, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub exists: bool,
    records: Vec<Record>,
    soa: Option<Record>,
    /// In seconds.
    pub ttl: u32,
}

impl Answer {
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

    /// There is nothing. It is remembered only if the upstream says who says so, and for how long.
    pub fn nothing(exists: bool, soa: Option<Record>, ttl: Option<u32>) -> Self {
        let ttl = ttl.filter(|_| soa.is_some()).unwrap_or(0).min(NEGATIVE_TTL_MAX);
        Self { exists, records: Vec::new(), soa, ttl }
    }

    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.records.iter().filter_map(|record| match record.data {
            RData::A(address) => Some(address.0),
            _ => None,
        })
    }

    /// The records when the answer is so old.
    pub fn list(&self, age: u32) -> Vec<Record> {
        let aged = |record: &Record| {
            let mut record = record.clone();
            record.ttl = record.ttl.saturating_sub(age);
            record
        };
        self.records.iter().map(aged).collect()
    }

    pub fn soa(&self, age: u32) -> Option<Record> {
        let mut soa = self.soa.clone()?;
        soa.ttl = self.ttl.saturating_sub(age);
        Some(soa)
    }

    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        let one = |record: &Record| {
            // Parsed, most of a record is its struct; what hangs on it is no more than it has on the wire.
            size_of::<Record>() + record.to_bytes().map_or(u16::MAX.into(), |bytes| bytes.len())
        };
        size_of::<Self>() + self.records.iter().chain(&self.soa).map(one).sum::<usize>()
    }
}

fn chain(name: &Name, kind: RecordType, records: &[Record]) -> Vec<Record> {
    let of_internet = || records.iter().filter(|record| record.dns_class == DNSClass::IN);
    let mut end = name;
    let mut kept = Vec::new();
    while kind != RecordType::CNAME && kept.len() < ALIASES_MAX {
        let alias = of_internet().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *end => Some((record, &target.0)),
            _ => None,
        });
        let Some((record, target)) = alias else { break };
        kept.push(record.clone());
        end = target;
    }
    let at_end = |record: &&Record| record.record_type() == kind && record.name == *end;
    kept.extend(of_internet().filter(at_end).take(RECORDS_MAX).cloned());
    kept
}

#[cfg(test)]
mod tests;
