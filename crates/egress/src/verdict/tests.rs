use api::{EgressDefault, EgressPolicy};

use super::*;

const ALLOWED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const DENIED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);

fn names(default: EgressDefault) -> EgressRules {
    EgressRules::new(&EgressPolicy {
        allow: vec!["good.test".into(), "*.below.test".into()],
        default,
        allow_networks: vec![ALLOWED.to_string()],
        deny_networks: vec!["198.51.100.0/24".into()],
    })
}

fn to(port: u16, is_learnt: bool) -> Destination {
    Destination { address: Some(Ipv4Addr::new(192, 0, 2, 7)), port, is_closed: false, is_learnt }
}

#[test]
fn the_table_of_decisions() {
    use Reason::{Malformed, NoName, NotAllowed, Port, UnknownAddress};
    let strict = names(EgressDefault::Deny);
    let refused = |reason| Verdict::Refused(reason, None);
    let not = |name: &str| Verdict::Refused(NotAllowed, Some(name.into()));
    let good = || Verdict::PassByName("good.test".into());
    for (flow, port, learnt, expected) in [
        (Flow::Lookup("good.test"), 0, false, good()),
        (Flow::Lookup("evil.test"), 0, false, not("evil.test")),
        (Flow::Tls(Some("good.test")), 443, false, good()),
        (Flow::Tls(Some("good.test")), 5432, false, good()),
        (Flow::Tls(Some("a.below.test")), 443, false, Verdict::PassByName("a.below.test".into())),
        // A learnt address opens nothing to another name.
        (Flow::Tls(Some("evil.test")), 443, true, not("evil.test")),
        (Flow::Tls(Some("evil.test")), 5432, true, not("evil.test")),
        (Flow::Tls(Some("below.test")), 443, true, not("below.test")),
        (Flow::Tls(None), 443, true, refused(NoName)),
        (Flow::Tls(None), 5432, true, refused(NoName)),
        (Flow::Http, 80, false, Verdict::ByRequest),
        (Flow::Http, 9000, true, Verdict::ByRequest),
        (Flow::Request("good.test"), 80, false, good()),
        (Flow::Request("evil.test"), 80, true, not("evil.test")),
        (Flow::Malformed, 80, true, refused(Malformed)),
        (Flow::OtherTcp, 80, true, refused(NoName)),
        (Flow::OtherTcp, 443, true, refused(NoName)),
        (Flow::OtherTcp, 22, true, Verdict::PassUnlessHttp),
        (Flow::OtherTcp, 22, false, refused(UnknownAddress)),
        (Flow::Silent, 443, true, refused(NoName)),
        (Flow::Silent, 22, false, refused(UnknownAddress)),
        (Flow::Silent, 22, true, refused(UnknownAddress)),
        (Flow::Opening, 443, false, Verdict::Pass),
        (Flow::Opening, 22, true, Verdict::Pass),
        (Flow::Opening, 22, false, refused(UnknownAddress)),
        (Flow::Opening, 53, true, refused(Port)),
        (Flow::Opening, 853, true, refused(Port)),
        (Flow::Tls(Some("good.test")), 853, true, refused(Port)),
        (Flow::Udp, 53, true, refused(Port)),
        (Flow::Udp, 443, true, refused(Port)),
        (Flow::Udp, 853, true, refused(Port)),
        (Flow::Udp, 123, true, Verdict::Pass),
        (Flow::Udp, 123, false, refused(UnknownAddress)),
    ] {
        assert_eq!(decide(&strict, flow, to(port, learnt)), expected, "{flow:?} {port} {learnt}");
    }
}

#[test]
fn default_allow_passes_all_but_closed_addresses() {
    let open = names(EgressDefault::Allow);
    for flow in [Flow::Opening, Flow::OtherTcp, Flow::Http, Flow::Tls(Some("evil.test")), Flow::Udp] {
        for port in [22, 53, 80, 443, 853] {
            assert_eq!(decide(&open, flow, to(port, false)), Verdict::Pass);
        }
    }
    for policy in [open, names(EgressDefault::Deny)] {
        for flow in [Flow::Opening, Flow::Tls(Some("good.test")), Flow::Http, Flow::Udp] {
            let closed = Destination { is_closed: true, ..to(53, true) };
            assert_eq!(decide(&policy, flow, closed), Verdict::Refused(Reason::ClosedAddress, None));
        }
    }
}

#[test]
fn an_allowed_network_passes_on_every_port_without_a_name() {
    let flows = [
        Flow::Opening,
        Flow::Tls(None),
        Flow::Tls(Some("evil.test")),
        Flow::Http,
        Flow::Request("evil.test"),
        Flow::OtherTcp,
        Flow::Silent,
        Flow::Malformed,
        Flow::Udp,
    ];
    for (flow, port) in flows.into_iter().flat_map(|flow| [22, 53, 80, 443, 853].map(|port| (flow, port))) {
        for policy in [EgressDefault::Allow, EgressDefault::Deny].map(names) {
            let allowed = Destination { address: Some(ALLOWED), ..to(port, false) };
            assert_eq!(decide(&policy, flow, allowed), Verdict::Pass, "{flow:?} {port}");
            let closed = Destination { is_closed: true, ..allowed };
            assert_eq!(decide(&policy, flow, closed), Verdict::Refused(Reason::ClosedAddress, None));
        }
        let denied = Destination { address: Some(DENIED), ..to(port, true) };
        let refused = Verdict::Refused(Reason::DeniedAddress, None);
        assert_eq!(decide(&names(EgressDefault::Allow), flow, denied), refused, "{flow:?} {port}");
    }
    let strict = names(EgressDefault::Deny);
    let denied = Destination { address: Some(DENIED), ..to(443, false) };
    assert_eq!(
        decide(&strict, Flow::Tls(Some("good.test")), denied),
        Verdict::PassByName("good.test".into())
    );
    assert_eq!(
        decide(&strict, Flow::Lookup("evil.test"), Destination { address: Some(ALLOWED), ..denied }),
        Verdict::Refused(Reason::NotAllowed, Some("evil.test".into())),
        "a list of networks opens no name"
    );
}

#[test]
fn the_server_may_speak_first_except_on_web_ports() {
    assert!(may_server_speak_first(22) && !may_server_speak_first(80) && !may_server_speak_first(443));
}

#[test]
fn a_connection_goes_only_to_a_resolved_address() {
    let [one, two, other] = [1, 2, 9].map(|last| Ipv4Addr::new(192, 0, 2, last));
    assert_eq!(connect_address(two, false, &[one, two]), Ok(two));
    assert_eq!(
        connect_address(other, true, &[one, two]),
        Ok(one),
        "the client was answered this address before"
    );
    assert_eq!(connect_address(other, false, &[one, two]), Err(Reason::WrongAddress));
}
