//! The resolver as the proxy uses it.

use std::net::Ipv4Addr;
use std::time::Duration;

use async_trait::async_trait;
use egress::{Addresses, Resolve, ResolveFailure};
use hickory_proto::rr::{RData, RecordType};
use rules::Closed;

use crate::inside::TestDns;
use crate::upstream::{Act, a, cname, txt};

#[tokio::test]
async fn addresses_or_the_reason_of_the_failure_are_returned() {
    let inside = TestDns::start().await;
    let alias =
        [cname("w.example", "x.example"), a("x.example", [192, 0, 2, 1]), a("x.example", [192, 0, 2, 2])];
    inside.upstream.answer("w.example", &alias);
    inside.upstream.answer("t.example", &[txt("t.example", "x")]);
    inside.upstream.answer("c.example", &[a("c.example", [192, 0, 2, 1]), a("c.example", [10, 0, 0, 5])]);
    inside.upstream.answer("p.example", &[a("p.example", [10, 64, 1, 1])]);
    inside.upstream.set("f.example", RecordType::A, Act::Silent);
    let resolver = &inside.parts.resolver;
    let found = resolver.addresses("w.example").await.unwrap();
    assert_eq!(found.list, [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]);
    assert_eq!(found.ttl, Duration::from_secs(300));
    for (name, failure) in [
        ("no.example", ResolveFailure::NoSuchName),
        ("t.example", ResolveFailure::NoAddress),
        ("c.example", ResolveFailure::Closed(Ipv4Addr::new(10, 0, 0, 5), Closed::Private)),
        ("p.example", ResolveFailure::Closed(Ipv4Addr::new(10, 64, 1, 1), Closed::Sandboxes)),
        ("localhost", ResolveFailure::Closed(Ipv4Addr::LOCALHOST, Closed::Loopback)),
    ] {
        assert_eq!(resolver.addresses(name).await, Err(failure), "{name}");
    }
    assert!(matches!(resolver.addresses("f.example").await, Err(ResolveFailure::Upstream(_))));
    assert!(inside.upstream.questions().iter().all(|(name, ..)| name != "localhost"));
}

struct Known;

#[async_trait]
impl Resolve for Known {
    async fn addresses(&self, name: &str) -> Result<Addresses, ResolveFailure> {
        match name {
            "a.example" => {
                Ok(Addresses { list: vec![Ipv4Addr::new(192, 0, 2, 1)], ttl: Duration::from_secs(9) })
            }
            "closed.example" => Err(ResolveFailure::Closed(Ipv4Addr::LOCALHOST, Closed::Loopback)),
            "empty.example" => Err(ResolveFailure::NoAddress),
            _ => Err(ResolveFailure::NoSuchName),
        }
    }
}

#[tokio::test]
async fn a_resolver_of_addresses_has_no_other_records() {
    let found = Known.records("a.example", RecordType::A).await.unwrap();
    assert_eq!(found.list[0].data, RData::A(Ipv4Addr::new(192, 0, 2, 1).into()));
    assert_eq!((found.exists, found.list[0].ttl), (true, 9));
    for (name, exists) in [("a.example", true), ("empty.example", true), ("no.example", false)] {
        let none = Known.records(name, RecordType::TXT).await.unwrap();
        assert_eq!((none.exists, none.list.len()), (exists, 0), "{name}");
    }
    let closed = Known.records("closed.example", RecordType::TXT).await;
    assert_eq!(closed, Err(ResolveFailure::Closed(Ipv4Addr::LOCALHOST, Closed::Loopback)));
}
