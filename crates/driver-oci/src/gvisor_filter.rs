//! The rules of system calls for gVisor's kernel. They differ from those of containers where its kernel does.

use driver::{AtStep, DriverError, DriverStep};
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator,
    LinuxSyscall, LinuxSyscallBuilder,
};

use crate::bundle::filter;

/// Its kernel has none of the kinds of sockets that the rules refuse.
const SOCKETS: [&str; 2] = ["socket", "socketpair"];
/// Its kernel keeps filters of sockets and of system calls in the memory of the sandbox, and takes no advice about shared files.
const HARMLESS: [&str; 4] = ["fadvise64", "prctl", "seccomp", "setsockopt"];
/// It starts no handler of core dumps.
const LIMITS: [&str; 1] = ["prlimit64"];
/// The agent sets the host name of a copied sandbox. Commands lack the capability.
const HOST_NAME: [&str; 1] = ["sethostname"];
/// Calls that send a signal, with the argument that names a process. Linux protects process 1, the agent, from those of its
/// namespace; gVisor does not.
const SIGNALS: [(&str, usize); 7] = [
    ("kill", 0),
    ("tkill", 0),
    ("tgkill", 0),
    ("tgkill", 1),
    ("rt_sigqueueinfo", 0),
    ("rt_tgsigqueueinfo", 0),
    ("rt_tgsigqueueinfo", 1),
];
const AGENT: u32 = 1;
/// All processes, for `kill`.
const ALL: u32 = u32::MAX;

/// The rules. The first one that matches counts.
///
/// gVisor's filters refuse with one errno only, `EPERM`, but programs fall back to an older call after `ENOSYS`, which an untraced
/// call returns.
pub fn gvisor_filter() -> Result<LinuxSeccomp, DriverError> {
    let mut filter = filter()?;
    filter.set_default_action(LinuxSeccompAction::ScmpActTrace);
    let mut rules = protected_agent().at(DriverStep::MakeCallFilter)?;
    for mut rule in filter.syscalls().clone().unwrap_or_default() {
        let special = |name: &str| [&SOCKETS[..], &HARMLESS, &LIMITS, &HOST_NAME].concat().contains(&name);
        let names: Vec<String> = rule.names().iter().filter(|name| !special(name)).cloned().collect();
        if !names.is_empty() {
            rule.set_names(names);
            rules.push(rule);
        }
    }
    rules.push(allowed(&[&SOCKETS[..], &HARMLESS, &HOST_NAME].concat()).at(DriverStep::MakeCallFilter)?);
    // Of the own process, and queries.
    for argument in [0, 2] {
        rules.push(allowed_with_zero(&LIMITS, argument).at(DriverStep::MakeCallFilter)?);
    }
    filter.set_syscalls(Some(rules));
    Ok(filter)
}

fn protected_agent() -> Result<Vec<LinuxSyscall>, OciSpecError> {
    let to_agent = SIGNALS.iter().map(|(name, argument)| refused(name, *argument, AGENT));
    to_agent.chain([refused("kill", 0, ALL)]).collect()
}

/// Refuses calls whose argument, of which the kernel reads the lower 32 bits, has this value.
fn refused(name: &str, argument: usize, value: u32) -> Result<LinuxSyscall, OciSpecError> {
    let argument: LinuxSeccompArg = LinuxSeccompArgBuilder::default()
        .index(argument)
        .value(u64::from(u32::MAX))
        .value_two(u64::from(value))
        .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
        .build()?;
    LinuxSyscallBuilder::default()
        .names([name.to_owned()])
        .action(LinuxSeccompAction::ScmpActErrno)
        .args([argument])
        .build()
}

/// Allows calls with an argument that is 0.
fn allowed_with_zero(names: &[&str], argument: usize) -> Result<LinuxSyscall, OciSpecError> {
    let mut rule = allowed(names)?;
    let zero = LinuxSeccompArgBuilder::default().index(argument).value(0_u64);
    rule.set_args(Some(vec![zero.op(LinuxSeccompOperator::ScmpCmpEq).build()?]));
    Ok(rule)
}

fn allowed(names: &[&str]) -> Result<LinuxSyscall, OciSpecError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    LinuxSyscallBuilder::default().names(names).action(LinuxSeccompAction::ScmpActAllow).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules for a call, in their order, as action, index, operator and values of their only argument.
    type Rule = (LinuxSeccompAction, Option<(usize, LinuxSeccompOperator, u64, Option<u64>)>);

    fn rules_of(name: &str) -> Vec<Rule> {
        let filter = gvisor_filter().unwrap();
        let rules = filter.syscalls().as_ref().unwrap().iter();
        let rules = rules.filter(|rule| rule.names().iter().any(|known| known == name));
        let rule = |rule: &LinuxSyscall| {
            let argument = rule.args().as_ref().and_then(|arguments| arguments.first());
            let argument = argument
                .map(|argument| (argument.index(), argument.op(), argument.value(), argument.value_two()));
            (rule.action(), argument)
        };
        rules.map(rule).collect()
    }

    #[test]
    fn no_signal_reaches_the_agent_by_any_call() {
        let refused = |argument: usize, process: u32| {
            let operator = LinuxSeccompOperator::ScmpCmpMaskedEq;
            let values = (argument, operator, u64::from(u32::MAX), Some(u64::from(process)));
            (LinuxSeccompAction::ScmpActErrno, Some(values))
        };
        for (name, argument) in SIGNALS {
            assert!(rules_of(name).contains(&refused(argument, AGENT)), "{name} {argument}");
        }
        assert!(rules_of("kill").contains(&refused(0, ALL)), "all processes include the agent");
    }

    #[test]
    fn the_refusals_of_signals_come_before_what_allows_them() {
        for (name, _) in SIGNALS {
            let actions: Vec<_> = rules_of(name).into_iter().map(|(action, _)| action).collect();
            let first_allowed = actions.iter().position(|action| *action == LinuxSeccompAction::ScmpActAllow);
            let last_refused = actions.iter().rposition(|action| *action == LinuxSeccompAction::ScmpActErrno);
            let (allowed, refused) = (first_allowed.unwrap_or(actions.len()), last_refused.unwrap());
            assert!(refused < allowed, "{name}: {actions:?}");
        }
    }

    #[test]
    fn what_gvisor_handles_itself_is_allowed_whatever_its_arguments() {
        for name in [&SOCKETS[..], &HARMLESS, &HOST_NAME].concat() {
            assert_eq!(rules_of(name), [(LinuxSeccompAction::ScmpActAllow, None)], "{name}");
        }
    }

    #[test]
    fn limits_can_be_read_and_those_of_the_own_process_set() {
        let zero = |argument| {
            let values = (argument, LinuxSeccompOperator::ScmpCmpEq, 0, None);
            (LinuxSeccompAction::ScmpActAllow, Some(values))
        };
        assert_eq!(rules_of("prlimit64"), [zero(0), zero(2)]);
    }

    #[test]
    fn calls_without_a_rule_look_as_if_the_kernel_lacked_them() {
        let filter = gvisor_filter().unwrap();
        assert_eq!(filter.default_action(), LinuxSeccompAction::ScmpActTrace);
        assert!(rules_of("no_such_call").is_empty());
    }
}
