//! The used parts of an answer.

use hickory_proto::rr::rdata::{CNAME, TXT};

use super::*;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn alias(of: &str, target: &str) -> Record {
    Record::from_rdata(name(of), 300, RData::CNAME(CNAME(name(target))))
}

fn address(of: &str, last: u8, ttl: u32) -> Record {
    Record::from_rdata(name(of), ttl, RData::A(Ipv4Addr::new(192, 0, 2, last).into()))
}

fn of(asked: &str, records: &[Record]) -> Answer {
    Answer::of(&name(asked), RecordType::A, records)
}

#[test]
fn aliases_are_followed() {
    let answer =
        of("a.", &[address("c.", 1, 100), alias("b.", "c."), alias("a.", "b."), address("c.", 2, 50)]);
    let owners: Vec<String> = answer.list(0).iter().map(|record| record.name.to_ascii()).collect();
    assert_eq!(owners, ["a.", "b.", "c.", "c."]);
    assert_eq!(answer.ttl, 50);
    assert_eq!(answer.list(20).iter().map(|record| record.ttl).collect::<Vec<_>>(), [280, 280, 80, 30]);
}

#[test]
fn unrequested_records_are_dropped() {
    let text = Record::from_rdata(name("a."), 9, RData::TXT(TXT::new(vec!["x".to_owned()])));
    let answer = of("a.", &[address("other.", 1, 100), text, address("a.", 2, 100)]);
    assert_eq!(answer.addresses().collect::<Vec<_>>(), [Ipv4Addr::new(192, 0, 2, 2)]);
    assert_eq!(answer.ttl, 100);
}

#[test]
fn alias_loops_end() {
    let answer = of("a.", &[alias("a.", "b."), alias("b.", "a.")]);
    assert_eq!(answer.addresses().count(), 0);
    assert_eq!(answer.list(0).len(), ALIASES_MAX);
    // Cached as a negative answer, not for the lifetime of the aliases.
    assert_eq!(answer.ttl, NEGATIVE_TTL_MAX);
}

#[test]
fn times_to_live_are_limited() {
    assert_eq!(of("a.", &[address("a.", 1, 1_000_000)]).ttl, TTL_MAX);
    assert_eq!(of("a.", &[address("a.", 1, 0)]).ttl, 0);
    let soa = Record::from_rdata(name("a."), 9000, RData::A(Ipv4Addr::LOCALHOST.into()));
    assert_eq!(Answer::nothing(false, Some(soa.clone()), Some(9000)).ttl, NEGATIVE_TTL_MAX);
    assert_eq!(Answer::nothing(false, Some(soa), Some(9000)).soa(50).unwrap().ttl, 10);
    assert_eq!(Answer::nothing(false, None, Some(9000)).ttl, 0);
}

#[test]
fn records_are_limited() {
    let many: Vec<Record> = (0..1000_u32).map(|_| address("a.", 1, 60)).collect();
    assert_eq!(of("a.", &many).addresses().count(), RECORDS_MAX);
}
