//! The rules that keep programs from taking memory of the kernel that no cgroup is charged for.
//!
//! A filter of a socket or of system calls is compiled to machine code, whose total size is limited for the whole host
//! (`net.core.bpf_jit_limit`) and charged to nobody: one sandbox could use all of it, and no sandbox could start any more. So options
//! that attach a filter to a socket are refused, and so are filters of system calls beyond the sandbox's own. A kernel that was
//! built without them returns the same errors, so programs fall back.
//!
//! With a larger receive buffer than the default one, a socket that is never read could hold 8 MB, which for most kinds of sockets
//! nobody is charged for. Changes of the size only look successful: programs that ask for a larger buffer also work with the default
//! one, and TCP enlarges the buffers of connections that are read by itself.
//!
//! The keys of peers of a TCP socket take up to 180 KB for one socket. Labels of IPv6 flows are limited for the whole host.
//!
//! The kernel reads the lower 32 bits of an operation, an option or a level. Rules that allow one compare all 64 bits, or a bit in
//! which it differs from what is refused.

use super::call_rules::{Match, Rule, allow, refuse};

const LEVEL: usize = 1;
const OPTION: usize = 2;

const SOCKET: u64 = libc::SOL_SOCKET as u64;
const TCP: u64 = libc::IPPROTO_TCP as u64;
const IPV6: u64 = libc::IPPROTO_IPV6 as u64;
/// The levels all of whose options work: IP, UDP, ICMPv6, raw IP, netlink and TLS.
const OTHER_LEVELS: [u64; 6] = [0, 17, 58, 255, 270, 282];

const ATTACH_FILTER: u64 = libc::SO_ATTACH_FILTER as u64;
/// `SO_ATTACH_BPF` and `SO_ATTACH_REUSEPORT_CBPF`.
const ATTACH_PROGRAM: Match = Match::Masked { mask: !1, value: libc::SO_ATTACH_BPF as u64 };
const ATTACH_REUSEPORT_EBPF: u64 = 52;
/// They set the size of the receive buffer of a socket.
const RECEIVE_BUFFERS: [u64; 2] = [libc::SO_RCVBUF as u64, libc::SO_RCVBUFFORCE as u64];
/// The other options of a socket below 128, with as few rules as possible.
const OTHER_OPTIONS: [Match; 17] = [
    Match::Below(8),
    Match::Is(9),
    Match::Masked { mask: !1, value: 10 },
    Match::Masked { mask: !3, value: 12 },
    Match::Masked { mask: !7, value: 16 },
    Match::Masked { mask: !1, value: 24 },
    Match::Is(27),
    Match::Masked { mask: !3, value: 28 },
    Match::Is(32),
    Match::Masked { mask: !1, value: 34 },
    Match::Masked { mask: !3, value: 36 },
    Match::Masked { mask: !7, value: 40 },
    Match::Masked { mask: !1, value: 48 },
    Match::Is(53),
    Match::Masked { mask: !1, value: 54 },
    Match::Masked { mask: !7, value: 56 },
    Match::Masked { mask: !63, value: 64 },
];

/// The options of TCP below 64, except those that store keys of peers (`TCP_MD5SIG` and `TCP_AO_*`).
const TCP_OPTIONS: [Match; 10] = [
    Match::Below(libc::TCP_MD5SIG as u64),
    Match::Is(15),
    Match::Masked { mask: !15, value: 16 },
    Match::Is(33),
    Match::Masked { mask: !1, value: 34 },
    Match::Masked { mask: !1, value: 36 },
    Match::Is(41),
    Match::Masked { mask: !1, value: 42 },
    Match::Masked { mask: !3, value: 44 },
    Match::Masked { mask: !15, value: 48 },
];

/// Takes a label of a flow, of which the host has 4,096. A label that a packet bears without that works.
const FLOW_LABELS: u64 = 32;
/// The bits in which all other options of IPv6 differ from it.
const IPV6_OPTION_BITS: u32 = 7;

const SET_SECCOMP: u64 = libc::PR_SET_SECCOMP as u64;
/// The bits in which all other operations of `prctl` differ from it.
const OPERATION_BITS: u32 = 8;

pub fn table() -> Vec<Rule> {
    let call = &["setsockopt"];
    let mut rules = OTHER_LEVELS.map(|level| allow(call, [(LEVEL, Match::Is(level))])).to_vec();
    let (tcp, socket) = ((LEVEL, Match::Is(TCP)), (LEVEL, Match::Is(SOCKET)));
    rules.extend(TCP_OPTIONS.map(|option| allow(call, [tcp, (OPTION, option)])));
    rules.extend(OTHER_OPTIONS.map(|option| allow(call, [socket, (OPTION, option)])));
    let attached = [Match::Is(ATTACH_FILTER), ATTACH_PROGRAM, Match::Is(ATTACH_REUSEPORT_EBPF)];
    rules.extend(attached.map(|option| refuse(call, libc::ENOPROTOOPT, [socket, (OPTION, option)])));
    // The errno 0: the call does nothing and returns success.
    rules.extend(RECEIVE_BUFFERS.map(|option| refuse(call, 0, [socket, (OPTION, Match::Is(option))])));
    let ipv6 = (LEVEL, Match::Is(IPV6));
    let other_options = Match::others(FLOW_LABELS, IPV6_OPTION_BITS);
    rules.extend(other_options.map(|option| allow(call, [ipv6, (OPTION, option)])));
    let refused = Match::Masked { mask: (1 << IPV6_OPTION_BITS) - 1, value: FLOW_LABELS };
    rules.push(refuse(call, libc::ENOPROTOOPT, [ipv6, (OPTION, refused)]));
    rules.extend(Match::others(SET_SECCOMP, OPERATION_BITS).map(|other| allow(&["prctl"], [(0, other)])));
    let refused = Match::Masked { mask: (1 << OPERATION_BITS) - 1, value: SET_SECCOMP };
    rules.push(refuse(&["prctl"], libc::EINVAL, [(0, refused)]));
    rules
}

#[cfg(test)]
mod tests {
    use super::super::call_rules::testing::verdict;
    use super::*;

    /// An argument as a program may pass it: the kernel ignores the upper half.
    fn variants(value: u64) -> [u64; 3] {
        [value, value | 1 << 32, value | u64::MAX << 32]
    }

    #[test]
    fn no_option_attaches_a_filter_and_all_others_work() {
        let rules = table();
        let refused = [26, 50, 51, 52];
        for option in (0..128).chain([u64::from(u32::MAX)]) {
            for option in variants(option) {
                for level in variants(SOCKET) {
                    let got = verdict(&rules, "setsockopt", [0, level, option]);
                    let is_filter = refused.contains(&(option & 0xffff_ffff));
                    assert!(!is_filter || got != 0, "option {option:#x} of level {level:#x}");
                    if level == SOCKET && option < 128 {
                        assert_eq!(got, if is_filter { libc::ENOPROTOOPT } else { 0 }, "option {option}");
                    }
                }
            }
        }
        for level in OTHER_LEVELS {
            for option in [0, 1, 26, 50, 51, 52, 300] {
                assert_eq!(verdict(&rules, "setsockopt", [0, level, option]), 0, "{level} {option}");
            }
        }
        for option in 0..64 {
            let is_key = [14, 32, 38, 39, 40].contains(&option);
            for option in variants(option) {
                let got = verdict(&rules, "setsockopt", [0, TCP, option]);
                assert!(if is_key { got != 0 } else { got == 0 || option > 64 }, "TCP {option:#x}: {got}");
            }
        }
    }

    #[test]
    fn no_option_takes_a_label_of_a_flow_and_all_others_of_ipv6_work() {
        let rules = table();
        for option in (0..128).chain([300, u64::from(u32::MAX)]) {
            for option in variants(option) {
                let is_label = option & 0xffff_ffff == FLOW_LABELS;
                let got = verdict(&rules, "setsockopt", [0, IPV6, option]);
                assert_eq!(got, if is_label { libc::ENOPROTOOPT } else { 0 }, "option {option:#x}");
                for level in [IPV6 | 1 << 32, IPV6 | u64::MAX << 32] {
                    assert!(!is_label || verdict(&rules, "setsockopt", [0, level, option]) != 0);
                }
            }
        }
    }

    #[test]
    fn no_operation_of_prctl_loads_a_filter_and_all_others_work() {
        let rules = table();
        // The named ones are PR_SET_VMA, PR_SET_PTRACER and PR_GET_AUXV.
        for operation in (0..128).chain([0x5356_4d41, 0x5961_6d61, 0x4155_5856]) {
            for operation in variants(operation) {
                let is_refused = operation & 0xffff_ffff == SET_SECCOMP;
                let got = verdict(&rules, "prctl", [operation, 0, 0]);
                assert_eq!(got, if is_refused { libc::EINVAL } else { 0 }, "operation {operation:#x}");
            }
        }
    }
}
