//! The changes of the sets for one sandbox.

use super::*;

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);

fn changes(passes: Passes, allowed: &[&str], denied: &[&str]) -> Vec<Change> {
    let list = |entries: &[&str]| entries.iter().map(|entry| entry.parse().unwrap()).collect();
    let networks = Networks { allowed: list(allowed), denied: list(denied) };
    SandboxEntry::new("link", KernelPolicy { passes, networks }).changes(GUEST)
}

/// Most sandboxes have no lists, and creating them must stay fast.
#[test]
fn a_sandbox_without_lists_needs_three_changes() {
    let key = || ElementKey { link: "link".to_owned(), guest: GUEST, target: None };
    assert_eq!(
        changes(Passes::Public, &[], &[]),
        [Change::Put(Set::Guests, key()), Change::Put(Set::Open, key()), Change::Drop(Set::Strict, key())]
    );
    assert_eq!(changes(Passes::Learnt, &[], &[]).len(), 3);
}

#[test]
fn lists_are_in_force_before_the_policy() {
    let made = changes(Passes::Public, &["203.0.113.7/32"], &["203.0.113.0/24"]);
    let range =
        |first: [u8; 4], last: [u8; 4]| RangeKey { guest: GUEST, first: first.into(), last: last.into() };
    assert_eq!(
        made[..2],
        [
            Change::PutRange(Set::AllowedNetworks, range([203, 0, 113, 7], [203, 0, 113, 7])),
            Change::PutRange(Set::DeniedNetworks, range([203, 0, 113, 0], [203, 0, 113, 255]))
        ]
    );
    assert!(made[2].put_into(Set::Listed).is_some());
    assert_eq!(made[3..], changes(Passes::Public, &[], &[]));
}

#[test]
fn every_rule_is_counted() {
    let text = "add table inet t\nflush chain inet t a\ntable inet t {\n\t# About a.\n\tchain a {\n\t\ttype filter hook prerouting \
                priority -450; policy accept;\n\n\t\tip saddr 1.2.3.4 drop\n\t\taccept\n\t}\n\n\tchain b {\n\t\tdrop\n\t}\n}\n";
    assert_eq!(plan::count_rules(text), 3);
}
