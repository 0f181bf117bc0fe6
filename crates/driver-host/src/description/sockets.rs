//! The rules for the sockets that a sandbox may create.
//!
//! Unix sockets, TCP, UDP, ping and raw IP sockets over IPv4 and IPv6, and route netlink are allowed. Others are
//! refused with the errno of a kernel that was built without them, so that programs fall back: Go tries MPTCP,
//! `libaudit` tries its netlink protocol.
//!
//! The kernel reads the lower 32 bits of each argument; the rules compare all 64, so a number with higher bits set matches no rule that
//! allows.

use super::call_rules::{Match, Rule, allow, refuse};

const FAMILY: usize = 0;
const KIND: usize = 1;
const PROTOCOL: usize = 2;

/// The bits of a socket's type that are not flags.
const KIND_MASK: u64 = 0xf;
const STREAM: u64 = libc::SOCK_STREAM as u64;
const DATAGRAM: u64 = libc::SOCK_DGRAM as u64;
const RAW: u64 = libc::SOCK_RAW as u64;

const UNIX: u64 = libc::AF_UNIX as u64;
const INET: u64 = libc::AF_INET as u64;
const INET6: u64 = libc::AF_INET6 as u64;
const NETLINK: u64 = libc::AF_NETLINK as u64;
const ROUTE: u64 = libc::NETLINK_ROUTE as u64;
const TCP: u64 = libc::IPPROTO_TCP as u64;
const UDP: u64 = libc::IPPROTO_UDP as u64;
const ICMP: u64 = libc::IPPROTO_ICMP as u64;
const ICMPV6: u64 = libc::IPPROTO_ICMPV6 as u64;
/// One more than the highest protocol number of an IP header. Above are protocols that only the kernel knows, such as MPTCP.
const IP_PROTOCOLS: u64 = 256;

/// All other families below [`FAMILIES_FROM`], with as few rules as possible: `(mask, value)`.
const OTHER_FAMILIES: [(u64, u64); 10] =
    [(!0, 0), (!0, 3), (!3, 4), (!1, 8), (!0, 11), (!3, 12), (!0, 17), (!1, 18), (!3, 20), (!7, 24)];
const FAMILIES_FROM: u64 = 32;

pub fn table() -> Vec<Rule> {
    let mut rules = vec![
        allow(&["socket", "socketpair"], [(FAMILY, Match::Is(UNIX))]),
        refuse(&["socketpair"], libc::EAFNOSUPPORT, [(FAMILY, Match::IsNot(UNIX))]),
        allow(&["socket"], [(FAMILY, Match::Is(NETLINK)), (PROTOCOL, Match::Is(ROUTE))]),
        refuse(
            &["socket"],
            libc::EPROTONOSUPPORT,
            [(FAMILY, Match::Is(NETLINK)), (PROTOCOL, Match::IsNot(ROUTE))],
        ),
        refuse(&["socket"], libc::EAFNOSUPPORT, [(FAMILY, Match::From(FAMILIES_FROM))]),
    ];
    for (mask, value) in OTHER_FAMILIES {
        rules.push(refuse(&["socket"], libc::EAFNOSUPPORT, [(FAMILY, Match::Masked { mask, value })]));
    }
    for (family, icmp) in [(INET, ICMP), (INET6, ICMPV6)] {
        push_internet_rules(&mut rules, family, icmp);
    }
    rules
}

/// The rules of IPv4 or IPv6. `protocols` are in ascending order.
fn push_internet_rules(rules: &mut Vec<Rule>, family: u64, icmp: u64) {
    let kind = |kind| (KIND, Match::Masked { mask: KIND_MASK, value: kind });
    let family = (FAMILY, Match::Is(family));
    let mut datagram = [0, UDP, icmp];
    datagram.sort_unstable();
    for (number, protocols) in [(STREAM, &[0, TCP][..]), (DATAGRAM, &datagram[..])] {
        for protocol in protocols {
            rules.push(allow(&["socket"], [family, kind(number), (PROTOCOL, Match::Is(*protocol))]));
        }
        let above = protocols.last().map_or(0, |last| last + 1);
        let refused = [family, kind(number), (PROTOCOL, Match::From(above))];
        rules.push(refuse(&["socket"], libc::EPROTONOSUPPORT, refused));
    }
    // A raw socket requires a capability, its packets pass the host's packet filter, and it does not use the kernel's
    // own implementation of the protocol.
    rules.push(allow(&["socket"], [family, kind(RAW), (PROTOCOL, Match::Below(IP_PROTOCOLS))]));
    let refused = [family, kind(RAW), (PROTOCOL, Match::From(IP_PROTOCOLS))];
    rules.push(refuse(&["socket"], libc::EPROTONOSUPPORT, refused));
    // SOCK_RDM, SOCK_SEQPACKET (SCTP, with protocol 0 too), SOCK_DCCP.
    let unsupported = (KIND, Match::Masked { mask: KIND_MASK & !3, value: 4 });
    rules.push(refuse(&["socket"], libc::ESOCKTNOSUPPORT, [family, unsupported]));
}

#[cfg(test)]
mod tests {
    use super::super::call_rules::testing::verdict;
    use super::*;

    const FLAGS: u64 = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;

    #[test]
    fn each_socket_matches_at_most_one_rule_and_only_the_listed_ones_are_allowed() {
        let rules = table();
        for family in (0..64).chain([INET | 1 << 32, u64::MAX]) {
            for kind in 0..16 {
                for protocol in (0..600).chain([TCP | 1 << 32, u64::MAX]) {
                    let allowed = match (family, kind) {
                        (UNIX, _) => true,
                        (NETLINK, _) => protocol == ROUTE,
                        (INET | INET6, STREAM) => [0, TCP].contains(&protocol),
                        (INET, DATAGRAM) => [0, UDP, ICMP].contains(&protocol),
                        (INET6, DATAGRAM) => [0, UDP, ICMPV6].contains(&protocol),
                        (INET | INET6, RAW) => protocol < 256,
                        _ => false,
                    };
                    let got = verdict(&rules, "socket", [family, kind | FLAGS, protocol]);
                    assert_eq!(got == 0, allowed, "socket {family} {kind} {protocol}: {got}");
                    let pair = verdict(&rules, "socketpair", [family, kind, protocol]);
                    assert_eq!(pair == 0, family == UNIX, "pair {family} {kind} {protocol}: {pair}");
                }
            }
        }
    }

    #[test]
    fn refused_sockets_have_the_errno_of_a_kernel_without_them() {
        let rules = table();
        let errno = |arguments| verdict(&rules, "socket", arguments);
        let number = |number: i32| u64::from(number.unsigned_abs());
        for family in [libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_KEY, libc::AF_XDP] {
            assert_eq!(errno([number(family), RAW, 0]), libc::EAFNOSUPPORT, "family {family}");
        }
        assert_eq!(errno([INET, STREAM, number(libc::IPPROTO_MPTCP)]), libc::EPROTONOSUPPORT);
        assert_eq!(errno([INET6, STREAM, number(libc::IPPROTO_SCTP)]), libc::EPROTONOSUPPORT);
        assert_eq!(errno([INET, number(libc::SOCK_SEQPACKET), 0]), libc::ESOCKTNOSUPPORT);
        assert_eq!(errno([NETLINK, RAW, number(libc::NETLINK_AUDIT)]), libc::EPROTONOSUPPORT);
    }
}
