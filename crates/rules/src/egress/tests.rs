use super::*;

fn names(default: EgressDefault, allow: &[&str]) -> Names {
    Names::new(&EgressPolicy { allow: allow.iter().map(|entry| (*entry).to_owned()).collect(), default })
}

#[test]
fn a_name_matches_exactly_and_a_wildcard_matches_subdomains() {
    let strict = names(EgressDefault::Deny, &["example.com", "*.Below.org"]);
    for (name, passes) in [
        ("example.com", true),
        ("www.example.com", false),
        ("notexample.com", false),
        ("example.com.evil.net", false),
        ("a.below.org", true),
        ("a.b.below.org", true),
        ("below.org", false),
        ("abelow.org", false),
        ("org", false),
    ] {
        assert_eq!(strict.passes(name), passes, "{name}");
    }
    assert!(names(EgressDefault::Allow, &["example.com"]).passes("anything.else"));
    assert!(!names(EgressDefault::Deny, &[]).passes("example.com"));
}

#[test]
fn a_wildcard_opens_no_public_resolver() {
    let strict = names(EgressDefault::Deny, &["*.google.com", "*.quad9.net", "dns.quad9.net"]);
    assert!(!strict.passes("dns.google.com"));
    assert!(!strict.passes("dns9.quad9.net"));
    assert!(strict.passes("dns.quad9.net"), "named itself");
    assert!(strict.passes("mail.google.com"));
    assert!(PUBLIC_RESOLVERS.is_sorted());
}

#[test]
fn names_are_compared_in_one_form() {
    assert_eq!(plain_name("Example.COM.").as_deref(), Some("example.com"));
    assert_eq!(plain_name("_dmarc.example.com").as_deref(), Some("_dmarc.example.com"));
    let long = format!("{}.com", "a".repeat(64));
    for bad in ["", ".", "a..b", "203.0.113.7", "a b", "a\0b", "[::1]", "ex*mple.com", "1", &long] {
        assert_eq!(plain_name(bad), None, "{bad:?}");
    }
}

#[test]
fn closed_ranges() {
    let ranges = Ranges::new(Some("10.64.0.0/18".parse().unwrap()), Vec::new());
    for (address, why) in [
        ("10.64.1.1", Some(Closed::Sandboxes)),
        ("10.1.2.3", Some(Closed::Private)),
        ("172.31.255.255", Some(Closed::Private)),
        ("172.32.0.0", None),
        ("192.168.0.1", Some(Closed::Private)),
        ("169.254.169.254", Some(Closed::Metadata)),
        ("169.254.1.1", Some(Closed::LinkLocal)),
        ("100.100.100.200", Some(Closed::Carrier)),
        ("127.0.0.53", Some(Closed::Loopback)),
        ("0.0.0.0", Some(Closed::ThisNetwork)),
        ("239.1.2.3", Some(Closed::Multicast)),
        ("255.255.255.255", Some(Closed::Reserved)),
        ("203.0.113.7", None),
        ("198.51.100.7", None),
        ("192.0.2.7", None),
        ("8.8.8.8", None),
    ] {
        assert_eq!(ranges.closed(address.parse().unwrap(), false), why, "{address}");
    }
    assert_eq!(ranges.closed("203.0.113.7".parse().unwrap(), true), Some(Closed::Host));
}

#[test]
fn what_the_operator_opens() {
    let opened = ["10.0.0.0/8", "192.168.7.7/32"].map(|range| range.parse().unwrap()).to_vec();
    let ranges = Ranges::new(Some("10.64.0.0/18".parse().unwrap()), opened);
    let closed = |address: &str, is_host| ranges.closed(address.parse().unwrap(), is_host);
    assert_eq!(closed("10.1.2.3", false), None);
    assert_eq!(closed("10.64.0.9", false), Some(Closed::Sandboxes), "never another sandbox");
    assert_eq!(closed("10.1.2.3", true), Some(Closed::Host), "a range does not mean the host");
    assert_eq!(closed("192.168.7.7", true), None, "an address that is written down does");
    assert_eq!(closed("192.168.7.8", false), Some(Closed::Private));
}

#[test]
fn addresses_closed_by_the_operator_stay_closed() {
    let parsed = |list: &[&str]| list.iter().map(|range| range.parse().unwrap()).collect::<Vec<Ipv4Net>>();
    let ranges =
        Ranges::new(Some("10.64.0.0/18".parse().unwrap()), parsed(&["10.0.0.0/8", "198.51.100.9/32"]))
            .closing(parsed(&["203.0.113.0/24", "10.5.0.0/16", "198.51.100.9/32"]));
    let closed = |address: &str, is_host| ranges.closed(address.parse().unwrap(), is_host);
    assert_eq!(closed("203.0.113.7", false), Some(Closed::Operator));
    assert_eq!(closed("203.0.114.7", false), None);
    assert_eq!(closed("10.1.2.3", false), None);
    assert_eq!(closed("10.5.2.3", false), Some(Closed::Operator), "whatever is open around it");
    assert_eq!(closed("198.51.100.9", true), Some(Closed::Operator), "whatever is opened by the same word");
    assert_eq!(closed("10.64.1.1", false), Some(Closed::Sandboxes));
}
