//! Caching, expiry and the limit.

use std::net::Ipv4Addr;
use std::time::Duration;

use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{Name, RData, Record};

use super::*;

fn address(ttl: u32) -> Arc<Answer> {
    let name = Name::from_ascii("a.").unwrap();
    let record = Record::from_rdata(name.clone(), ttl, RData::A(Ipv4Addr::new(192, 0, 2, 1).into()));
    Arc::new(Answer::of(&name, RecordType::A, &[record]))
}

fn text(bytes: usize) -> Arc<Answer> {
    let name = Name::from_ascii("a.").unwrap();
    let strings = (0..bytes.div_ceil(200)).map(|_| "x".repeat(200)).collect();
    let record = Record::from_rdata(name.clone(), 600, RData::TXT(TXT::new(strings)));
    Arc::new(Answer::of(&name, RecordType::TXT, &[record]))
}

#[test]
fn answers_expire() {
    let (cache, start) = (Cache::default(), Instant::now());
    cache.insert("a", RecordType::A, &address(30), start);
    let at =
        |seconds| cache.find("a", RecordType::A, start + Duration::from_secs(seconds)).map(|(_, age)| age);
    assert_eq!((at(0), at(29), at(30)), (Some(0), Some(29), None));
    assert!(cache.find("a", RecordType::TXT, start).is_none());
    cache.insert("b", RecordType::A, &address(0), start);
    assert!(cache.find("b", RecordType::A, start).is_none());
}

#[test]
fn the_cache_is_bounded_by_bytes() {
    let (cache, start) = (Cache::default(), Instant::now());
    let large = text(20_000);
    cache.insert("used", RecordType::TXT, &large, start);
    for number in 0..10_000 {
        cache.insert(&format!("n{number}"), RecordType::TXT, &large, start);
        assert!(cache.find("used", RecordType::TXT, start).is_some(), "{number}");
        assert!(cache.bytes() <= BYTES_MAX, "{}", cache.bytes());
    }
    assert!(cache.bytes() > BYTES_MAX / 4);
    assert!(cache.find("n9999", RecordType::TXT, start).is_some());
    assert!(cache.find("n1", RecordType::TXT, start).is_none());
}

#[test]
fn a_replaced_answer_counts_once() {
    let (cache, start) = (Cache::default(), Instant::now());
    cache.insert("a", RecordType::A, &address(30), start);
    let once = cache.bytes();
    for _ in 0..100 {
        cache.insert("a", RecordType::A, &address(30), start);
    }
    assert_eq!(cache.bytes(), once);
}

#[test]
fn large_answers_are_not_cached() {
    let (cache, start) = (Cache::default(), Instant::now());
    cache.insert("a", RecordType::TXT, &text(60_000), start);
    assert!(cache.find("a", RecordType::TXT, start).is_some());
    cache.insert("b", RecordType::TXT, &text(65_300), start);
    assert!(cache.find("b", RecordType::TXT, start).is_none());
}
