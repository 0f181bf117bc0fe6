use proptest::prelude::*;

use super::*;
use crate::AddressOwner::{Host, Other};

fn list(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|entry| (*entry).to_owned()).collect()
}

fn names(default: EgressDefault, allow: &[&str]) -> EgressRules {
    EgressRules::new(&EgressPolicy { allow: list(allow), default, ..EgressPolicy::default() })
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
        assert_eq!(ranges.closed(address.parse().unwrap(), Other), why, "{address}");
    }
    assert_eq!(ranges.closed("203.0.113.7".parse().unwrap(), Host), Some(Closed::Host));
}

#[test]
fn what_the_operator_opens() {
    let opened = ["10.0.0.0/8", "192.168.7.7/32"].map(|range| range.parse().unwrap()).to_vec();
    let ranges = Ranges::new(Some("10.64.0.0/18".parse().unwrap()), opened);
    let closed = |address: &str, owner| ranges.closed(address.parse().unwrap(), owner);
    assert_eq!(closed("10.1.2.3", Other), None);
    assert_eq!(closed("10.64.0.9", Other), Some(Closed::Sandboxes), "never another sandbox");
    assert_eq!(closed("10.1.2.3", Host), Some(Closed::Host), "a range does not mean the host");
    assert_eq!(closed("192.168.7.7", Host), None, "an address that is written down does");
    assert_eq!(closed("192.168.7.8", Other), Some(Closed::Private));
}

#[test]
fn addresses_closed_by_the_operator_stay_closed() {
    let parsed = |list: &[&str]| list.iter().map(|range| range.parse().unwrap()).collect::<Vec<Ipv4Net>>();
    let ranges =
        Ranges::new(Some("10.64.0.0/18".parse().unwrap()), parsed(&["10.0.0.0/8", "198.51.100.9/32"]))
            .closing(parsed(&["203.0.113.0/24", "10.5.0.0/16", "198.51.100.9/32"]));
    let closed = |address: &str, owner| ranges.closed(address.parse().unwrap(), owner);
    assert_eq!(closed("203.0.113.7", Other), Some(Closed::Operator));
    assert_eq!(closed("203.0.114.7", Other), None);
    assert_eq!(closed("10.1.2.3", Other), None);
    assert_eq!(closed("10.5.2.3", Other), Some(Closed::Operator), "whatever is open around it");
    assert_eq!(closed("198.51.100.9", Host), Some(Closed::Operator), "whatever is opened by the same word");
    assert_eq!(closed("10.64.1.1", Other), Some(Closed::Sandboxes));
}

#[test]
fn an_allowed_network_takes_precedence_over_a_denied_one() {
    use AddressVerdict::{ByName, Pass, Refuse};
    use EgressDefault::{Allow, Deny};
    let inside = ["198.51.100.7", "198.51.100.8", "203.0.113.9"];
    for (default, allowed, denied, expected) in [
        (Allow, &[][..], &[][..], [Pass, Pass, Pass]),
        (Allow, &["198.51.100.7"], &[], [Pass, Pass, Pass]),
        (Allow, &[], &["198.51.100.7"], [Refuse, Pass, Pass]),
        (Allow, &[], &["198.51.100.0/24"], [Refuse, Refuse, Pass]),
        (Allow, &["198.51.100.7"], &["198.51.100.0/24"], [Pass, Refuse, Pass]),
        (Allow, &["198.51.100.0/24"], &["198.51.100.7", "203.0.113.0/25"], [Pass, Pass, Refuse]),
        (Allow, &["198.51.100.8/32"], &["0.0.0.0/0"], [Refuse, Pass, Refuse]),
        (Allow, &[], &["0.0.0.0/1", "128.0.0.0/1"], [Refuse, Refuse, Refuse]),
        (Allow, &["198.51.100.0/24"], &["not a network"], [Pass, Pass, Refuse]),
        (Deny, &[], &[], [ByName, ByName, ByName]),
        (Deny, &["198.51.100.7"], &[], [Pass, ByName, ByName]),
        (Deny, &["198.51.100.0/24"], &["198.51.100.7"], [Pass, Pass, ByName]),
        // The name decides, as without the list: a listed name stays allowed.
        (Deny, &[], &["198.51.100.0/24"], [ByName, ByName, ByName]),
        (Deny, &["not a network"], &[], [ByName, ByName, ByName]),
    ] {
        let rules = EgressRules::new(&EgressPolicy {
            default,
            allow: Vec::new(),
            allow_networks: list(allowed),
            deny_networks: list(denied),
        });
        let verdicts = inside.map(|address| rules.address_verdict(address.parse().unwrap()));
        assert_eq!(verdicts, expected, "{default:?}, allowed {allowed:?}, denied {denied:?}");
    }
}

#[test]
fn networks_have_one_form() {
    for (text, canonical) in [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7/32", "203.0.113.7"),
        ("203.0.113.7/24", "203.0.113.0/24"),
        ("255.255.255.255/0", "0.0.0.0/0"),
    ] {
        assert_eq!(parse_network(text).map(|network| network_text(&network)).as_deref(), Some(canonical));
    }
    for wrong in [
        "",
        "/",
        "203.0.113.7/",
        "203.0.113.7/33",
        "203.0.113.7/+8",
        "203.0.113.7/08",
        "203.0.113.7/-1",
        "203.0.113.7/24/24",
        "203.0.113",
        "203.0.113.07",
        "203.0.113.256",
        " 203.0.113.7",
        "example.com",
        "2001:db8::1",
        "2001:db8::/32",
        "::ffff:203.0.113.7",
    ] {
        assert_eq!(parse_network(wrong), None, "{wrong:?}");
    }
}

#[test]
fn lists_without_effect_are_left_out() {
    let networks = |default, allowed: &[&str], denied: &[&str]| {
        Networks::new(&EgressPolicy {
            default,
            allow: Vec::new(),
            allow_networks: list(allowed),
            deny_networks: list(denied),
        })
    };
    assert!(networks(EgressDefault::Allow, &["203.0.113.0/24"], &[]).is_empty());
    assert!(networks(EgressDefault::Deny, &[], &["203.0.113.0/24"]).is_empty());
    let both = networks(EgressDefault::Allow, &["203.0.113.0/25", "203.0.113.128/25"], &["203.0.113.7"]);
    assert_eq!(both.allowed, ["203.0.113.0/24".parse().unwrap()]);
}

fn some_networks() -> impl Strategy<Value = Vec<String>> {
    // Few bits, so that networks and addresses meet.
    let network = (0..64_u32, 24..=32_u8).prop_map(|(host, prefix)| {
        network_text(&Ipv4Net::new(Ipv4Addr::from(0xcb00_7100 | host << 2), prefix).unwrap())
    });
    prop::collection::vec(network, 0..6)
}

proptest! {
    /// The lists for the kernel are merged and shortened; entry by entry, the policy says the same.
    #[test]
    fn merged_lists_decide_like_the_entries(
        allow_networks in some_networks(),
        deny_networks in some_networks(),
        is_strict: bool,
        host in 0..256_u32,
    ) {
        let default = if is_strict { EgressDefault::Deny } else { EgressDefault::Allow };
        let address = Ipv4Addr::from(0xcb00_7100 | host);
        let is_in = |list: &[String]| {
            list.iter().any(|entry| parse_network(entry).unwrap().contains(&address))
        };
        let expected = match (is_in(&allow_networks), is_in(&deny_networks)) {
            (true, _) => AddressVerdict::Pass,
            _ if is_strict => AddressVerdict::ByName,
            (_, true) => AddressVerdict::Refuse,
            _ => AddressVerdict::Pass,
        };
        let policy = EgressPolicy { default, allow: Vec::new(), allow_networks, deny_networks };
        prop_assert_eq!(EgressRules::new(&policy).address_verdict(address), expected);
        let Networks { allowed, denied } = Networks::new(&policy);
        for list in [allowed, denied] {
            prop_assert!(list.iter().filter(|network| network.contains(&address)).count() <= 1);
        }
    }
}
