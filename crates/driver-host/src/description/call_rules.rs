//! Rules for system calls that are allowed depending on their arguments. Called by `description`, which adds them to `seccomp.json`.
//!
//! The rules of a call do not overlap, so the result does not depend on their order. A call that matches no rule gets the filter's
//! default, `ENOSYS`. Each rule costs time at each start of a container: under runc 45 rules take 1 ms, 69 take 4 ms.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator, LinuxSyscall,
    LinuxSyscallBuilder,
};

/// The condition of a rule for one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    Is(u64),
    IsNot(u64),
    Below(u64),
    From(u64),
    Masked { mask: u64, value: u64 },
}

/// One rule: system calls, conditions for their arguments, and the errno. Without an errno the call is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub calls: &'static [&'static str],
    pub arguments: Vec<(usize, Match)>,
    pub errno: Option<i32>,
}

/// A rule that allows calls whose arguments match all conditions.
pub fn allow<const N: usize>(calls: &'static [&'static str], arguments: [(usize, Match); N]) -> Rule {
    Rule { calls, arguments: arguments.to_vec(), errno: None }
}

/// A rule that refuses such calls with an errno.
pub fn refuse<const N: usize>(
    calls: &'static [&'static str],
    errno: i32,
    arguments: [(usize, Match); N],
) -> Rule {
    Rule { calls, arguments: arguments.to_vec(), errno: Some(errno) }
}

impl Rule {
    /// The rule in the form of an OCI runtime.
    pub fn to_oci(&self) -> Result<LinuxSyscall, OciSpecError> {
        let names: Vec<String> = self.calls.iter().map(|call| (*call).to_owned()).collect();
        let arguments: Result<Vec<LinuxSeccompArg>, OciSpecError> =
            self.arguments.iter().map(|(index, comparison)| comparison.to_oci(*index)).collect();
        let syscall = LinuxSyscallBuilder::default().names(names).args(arguments?);
        match self.errno {
            None => syscall.action(LinuxSeccompAction::ScmpActAllow).build(),
            Some(errno) => {
                syscall.action(LinuxSeccompAction::ScmpActErrno).errno_ret(errno.unsigned_abs()).build()
            }
        }
    }
}

impl Match {
    /// All numbers whose lower `bits` differ from those of `value`, as conditions that do not overlap.
    pub fn others(value: u64, bits: u32) -> impl Iterator<Item = Self> {
        // Equal below a bit, and different in it.
        (0..bits).map(move |bit| {
            let mask = (2 << bit) - 1;
            Self::Masked { mask, value: (value ^ (1 << bit)) & mask }
        })
    }

    fn to_oci(self, index: usize) -> Result<LinuxSeccompArg, OciSpecError> {
        let argument = LinuxSeccompArgBuilder::default().index(index);
        match self {
            Self::Is(value) => argument.op(LinuxSeccompOperator::ScmpCmpEq).value(value).build(),
            Self::IsNot(value) => argument.op(LinuxSeccompOperator::ScmpCmpNe).value(value).build(),
            Self::Below(value) => argument.op(LinuxSeccompOperator::ScmpCmpLt).value(value).build(),
            Self::From(value) => argument.op(LinuxSeccompOperator::ScmpCmpGe).value(value).build(),
            Self::Masked { mask, value } => {
                argument.op(LinuxSeccompOperator::ScmpCmpMaskedEq).value(mask).value_two(value).build()
            }
        }
    }
}

#[cfg(test)]
pub mod testing {
    //! What the kernel decides by a list of rules.

    use super::{Match, Rule};

    const NO_RULE: i32 = libc::ENOSYS;

    fn holds(comparison: Match, value: u64) -> bool {
        match comparison {
            Match::Is(wanted) => value == wanted,
            Match::IsNot(refused) => value != refused,
            Match::Below(end) => value < end,
            Match::From(start) => value >= start,
            Match::Masked { mask, value: wanted } => value & mask == wanted,
        }
    }

    /// What the rule of a call says: the errno, or none if it allows the call. Two matching rules are an error.
    pub fn matching(rules: &[Rule], call: &str, arguments: [u64; 3]) -> Option<Option<i32>> {
        let mut matching = rules.iter().filter(|rule| {
            rule.calls.contains(&call)
                && rule.arguments.iter().all(|(index, comparison)| holds(*comparison, arguments[*index]))
        });
        let first = matching.next().map(|rule| rule.errno);
        assert_eq!(matching.next(), None, "two rules for {call} {arguments:?}");
        first
    }

    /// The errno of a call, 0 if it is allowed.
    pub fn verdict(rules: &[Rule], call: &str, arguments: [u64; 3]) -> i32 {
        matching(rules, call, arguments).map_or(NO_RULE, |errno| errno.unwrap_or(0))
    }
}
