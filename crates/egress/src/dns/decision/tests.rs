//! Questions under default allow and default deny.

use api::{EgressDefault, EgressPolicy};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use rules::EgressRules;

use super::*;

const OWN: &str = "sb-1";

fn policy(default: EgressDefault, allow: &[&str]) -> EgressRules {
    EgressRules::new(&EgressPolicy {
        allow: allow.iter().map(|name| (*name).to_owned()).collect(),
        default,
        ..EgressPolicy::default()
    })
}

fn strict() -> EgressRules {
    policy(EgressDefault::Deny, &["api.example.com", "*.wide.example", "localhost.example"])
}

fn question(name: &str, kind: RecordType) -> Question {
    Question { name: Name::from_ascii(name).unwrap(), kind, class: DNSClass::IN }
}

#[test]
fn a_closed_policy_passes_listed_names() {
    use Decision::*;
    let listed = || "api.example.com".to_owned();
    for (name, kind, decision) in [
        ("api.example.com.", RecordType::A, Addresses(listed())),
        ("API.eXample.com.", RecordType::A, Addresses(listed())),
        ("api.example.com.", RecordType::AAAA, ExistenceOf(listed())),
        ("api.example.com.", RecordType::HTTPS, ExistenceOf(listed())),
        ("api.example.com.", RecordType::SVCB, ExistenceOf(listed())),
        ("api.example.com.", RecordType::ANY, Something),
        ("api.example.com.", RecordType::MX, Records(listed())),
        ("api.example.com.", RecordType::TXT, Records(listed())),
        ("api.example.com.", RecordType::CNAME, Records(listed())),
        ("api.example.com.", RecordType::PTR, Records(listed())),
        ("api.example.com.", RecordType::AXFR, Refused),
        ("api.example.com.", RecordType::IXFR, Refused),
        ("api.example.com.", RecordType::OPT, NotImplemented),
        ("api.example.com.", RecordType::TSIG, NotImplemented),
        ("api.example.com.", RecordType::from(0), NotImplemented),
        ("api.example.com.", RecordType::from(253), NotImplemented),
        ("_xmpp._tcp.wide.example.", RecordType::SRV, Records("_xmpp._tcp.wide.example".to_owned())),
        ("wide.example.", RecordType::A, NotAllowed),
        ("x.api.example.com.", RecordType::A, NotAllowed),
        ("example.com.", RecordType::NS, NotAllowed),
        ("com.", RecordType::SOA, NotAllowed),
        ("elsewhere.example.", RecordType::A, NotAllowed),
        ("elsewhere.example.", RecordType::AAAA, NotAllowed),
        ("elsewhere.example.", RecordType::ANY, NotAllowed),
        ("elsewhere.example.", RecordType::TXT, NotAllowed),
        (r"a\.b.wide.example.", RecordType::A, NotAllowed),
        (r"\*.wide.example.", RecordType::A, NotAllowed),
        ("192.0.2.1.", RecordType::A, NotAllowed),
        (".", RecordType::NS, NoData),
    ] {
        assert_eq!(decide(&question(name, kind), &strict(), OWN), decision, "{name} {kind}");
    }
}

#[test]
fn an_open_policy_passes_every_name_of_a_host() {
    use Decision::*;
    let open = policy(EgressDefault::Allow, &[]);
    for (name, kind, decision) in [
        ("elsewhere.example.", RecordType::A, Addresses("elsewhere.example".to_owned())),
        ("elsewhere.example.", RecordType::TXT, Records("elsewhere.example".to_owned())),
        ("elsewhere.example.", RecordType::AAAA, ExistenceOf("elsewhere.example".to_owned())),
        (r"a\.b.example.", RecordType::A, NoSuchName),
        ("192.0.2.1.", RecordType::A, NoSuchName),
    ] {
        assert_eq!(decide(&question(name, kind), &open, OWN), decision, "{name} {kind}");
    }
}

#[test]
fn special_names_have_local_answers_under_any_policy() {
    use Decision::*;
    for policy in [strict(), policy(EgressDefault::Allow, &[]), policy(EgressDefault::Deny, &["*.arpa"])] {
        for (name, kind, decision) in [
            ("localhost.", RecordType::A, Localhost),
            ("LOCALHOST.", RecordType::A, Localhost),
            ("db.localhost.", RecordType::A, Localhost),
            ("localhost.", RecordType::AAAA, NoData),
            ("localhost.", RecordType::TXT, NoData),
            ("1.0.0.10.in-addr.arpa.", RecordType::PTR, NoSuchName),
            ("8.8.8.8.in-addr.arpa.", RecordType::PTR, NoSuchName),
            ("8.8.8.8.in-addr.arpa.", RecordType::TXT, NoSuchName),
            ("1.ip6.arpa.", RecordType::PTR, NoSuchName),
            ("_dns.resolver.arpa.", RecordType::SVCB, NoSuchName),
            ("use-application-dns.net.", RecordType::A, NoSuchName),
            ("Use-Application-DNS.net.", RecordType::AAAA, NoSuchName),
        ] {
            assert_eq!(decide(&question(name, kind), &policy, OWN), decision, "{name} {kind}");
        }
    }
    let names = strict();
    assert_eq!(decide(&question("notlocalhost.", RecordType::A), &names, OWN), NotAllowed);
    assert_eq!(
        decide(&question("localhost.example.", RecordType::A), &names, OWN),
        Addresses("localhost.example".to_owned())
    );
}

#[test]
fn labels_with_special_bytes_are_refused() {
    for label in [&b"a\0b"[..], b"a.wide.example", b"\xff", b"\xc3\xa4", b"a b", b"a\\b", b"*"] {
        let labels = [label, b"wide", b"example"];
        let name = Name::from_labels(labels).unwrap();
        let question = Question { name, kind: RecordType::A, class: DNSClass::IN };
        assert_eq!(decide(&question, &strict(), OWN), Decision::NotAllowed, "{label:?}");
    }
}

#[test]
fn only_the_class_in_is_answered() {
    for class in [DNSClass::CH, DNSClass::HS, DNSClass::ANY, DNSClass::NONE] {
        let question = Question { class, ..question("api.example.com.", RecordType::A) };
        assert_eq!(decide(&question, &strict(), OWN), Decision::Refused, "{class}");
    }
}

#[test]
fn public_resolvers_pass_only_if_listed() {
    let wide = policy(EgressDefault::Deny, &["*.google"]);
    assert_eq!(decide(&question("dns.google.", RecordType::A), &wide, OWN), Decision::NotAllowed);
}

#[test]
fn the_own_host_name_is_answered() {
    let question = |kind| question("SB-1.", kind);
    assert_eq!(decide(&question(RecordType::A), &strict(), OWN), Decision::Localhost);
    assert_eq!(decide(&question(RecordType::AAAA), &strict(), OWN), Decision::NoData);
    assert_eq!(decide(&question(RecordType::A), &strict(), "sb-2"), Decision::NotAllowed);
}
