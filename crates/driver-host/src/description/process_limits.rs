//! The rules for changes of resource limits.
//!
//! A process may change its own limits only: the agent has the same user id, so a command could lower the limits of the agent.
//!
//! The limit of core dumps stays. With the limit 0 the kernel still starts the host's handler of core dumps for each crash, if
//! `kernel.core_pattern` names one, as root and in no cgroup; only the limit 1 prevents that. A change of it looks successful,
//! because programs that handle secrets set it to 0.

use super::call_rules::{Match, Rule, allow, refuse};

const CALL: &[&str] = &["prlimit64"];
const PROCESS: usize = 0;
const RESOURCE: usize = 1;
const NEW: usize = 2;

const CORE: u64 = libc::RLIMIT_CORE as u64;
/// The bits of the number of a resource.
const RESOURCE_BITS: u32 = 4;

pub fn table() -> Vec<Rule> {
    let own = (PROCESS, Match::Is(0));
    // Not "unequal": libseccomp loses that rule beside one that says "equal" of the same argument and value.
    let change = (NEW, Match::From(1));
    let mut rules = vec![allow(CALL, [(NEW, Match::Is(0))])];
    rules.extend(
        Match::others(CORE, RESOURCE_BITS).map(|other| allow(CALL, [own, change, (RESOURCE, other)])),
    );
    let core = Match::Masked { mask: (1 << RESOURCE_BITS) - 1, value: CORE };
    rules.push(refuse(CALL, 0, [own, change, (RESOURCE, core)]));
    rules
}

#[cfg(test)]
mod tests {
    use super::super::call_rules::testing::matching;
    use super::*;

    #[test]
    fn limits_are_read_of_all_processes_and_changed_of_the_own_one() {
        let rules = table();
        let pointer = 0x7fff_0000_1000;
        for resource in 0..16 {
            for process in [0, 1, 7, u64::MAX] {
                assert_eq!(matching(&rules, "prlimit64", [process, resource, 0]), Some(None));
            }
            let own = matching(&rules, "prlimit64", [0, resource, pointer]);
            assert_eq!(own, Some((resource == CORE).then_some(0)), "resource {resource}");
            assert_eq!(matching(&rules, "prlimit64", [1, resource, pointer]), None);
        }
        // The kernel ignores the upper half.
        assert_eq!(matching(&rules, "prlimit64", [0, CORE | 1 << 32, pointer]), Some(Some(0)));
    }
}
