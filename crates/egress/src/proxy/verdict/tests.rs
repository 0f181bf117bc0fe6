use api::{EgressDefault, EgressPolicy};

use super::*;

fn names(default: EgressDefault) -> Names {
    Names::new(&EgressPolicy { allow: vec!["good.test".into(), "*.below.test".into()], default })
}

fn tls(name: &str) -> First {
    First::Tls { name: Some(name.into()) }
}

#[test]
fn the_table_of_what_is_decided() {
    use Reason::{Malformed, NoName, NotAllowed, UnknownAddress};
    let strict = names(EgressDefault::Deny);
    let refused = |reason| Verdict::Refused(reason, None);
    let not = |name: &str| Verdict::Refused(NotAllowed, Some(name.into()));
    for (first, port, known, expected) in [
        (tls("good.test"), 443, false, Verdict::Named("good.test".into())),
        (tls("good.test"), 5432, false, Verdict::Named("good.test".into())),
        (tls("a.below.test"), 443, false, Verdict::Named("a.below.test".into())),
        // A known address opens nothing to another name.
        (tls("evil.test"), 443, true, not("evil.test")),
        (tls("evil.test"), 5432, true, not("evil.test")),
        (tls("below.test"), 443, true, not("below.test")),
        (First::Tls { name: None }, 443, true, refused(NoName)),
        (First::Tls { name: None }, 5432, true, refused(NoName)),
        (First::Http, 80, false, Verdict::Http),
        (First::H2c, 9000, true, Verdict::Http),
        (First::Malformed, 80, true, refused(Malformed)),
        (First::Other, 80, true, refused(NoName)),
        (First::Other, 443, true, refused(NoName)),
        (First::Other, 22, true, Verdict::Watched),
        (First::Other, 22, false, refused(UnknownAddress)),
        // Silent to the end.
        (First::NeedMore(1), 443, true, refused(NoName)),
        (First::NeedMore(1), 22, false, refused(UnknownAddress)),
    ] {
        assert_eq!(judge(&strict, &first, port, known), expected, "{first:?} {port} {known}");
    }
    let open = names(EgressDefault::Allow);
    for first in [First::Other, First::Http, tls("evil.test"), First::Tls { name: None }] {
        assert_eq!(judge(&open, &first, 443, false), Verdict::Straight);
    }
}

#[test]
fn ports_of_resolvers_are_closed_beforehand() {
    let strict = names(EgressDefault::Deny);
    for port in [53, 853] {
        assert_eq!(beforehand(&strict, port), Some(Reason::Port));
        assert_eq!(beforehand(&names(EgressDefault::Allow), port), None);
    }
    assert_eq!(beforehand(&strict, 443), None);
    assert!(may_wait_for_server(22) && !may_wait_for_server(80) && !may_wait_for_server(443));
}

#[test]
fn a_connection_goes_to_an_address_of_ours_alone() {
    let [one, two, other] = [1, 2, 9].map(|last| Ipv4Addr::new(192, 0, 2, last));
    assert_eq!(destination(two, false, &[one, two]), Ok(two));
    assert_eq!(destination(other, true, &[one, two]), Ok(one), "it was told so once");
    assert_eq!(destination(other, false, &[one, two]), Err(Reason::WrongAddress));
}
