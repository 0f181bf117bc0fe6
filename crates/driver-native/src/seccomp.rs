//! Compiles the allowed system calls into a filter, a program for the kernel's classic BPF machine.
//!
//! The program finds the range of the system call's number by a binary search. Most ranges are allowed or refused as they are; the
//! kernel learns which, and then does not run the program for them. The others compare arguments.

use std::collections::BTreeMap;

use driver::{DriverError, DriverStep};
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, LinuxSyscall,
};
use syscalls::Sysno;

/// An instruction, as the kernel's `struct sock_filter`.
pub type Instruction = (u16, u8, u8, u32);

// From the kernel's <linux/bpf_common.h>.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

// From the kernel's <linux/seccomp.h>.
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const THIS_ARCHITECTURE: u32 = 0xc000_003e;
/// Bit of the numbers of the x32 interface.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;
#[cfg(target_arch = "aarch64")]
const THIS_ARCHITECTURE: u32 = 0xc000_00b7;

/// The verdict on one system call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Always(u32),
    /// The first rule whose conditions all hold decides.
    ByArguments(Vec<(Vec<LinuxSeccompArg>, u32)>),
}

/// Compiles a list of rules. Names that this architecture does not have are ignored.
pub fn compile(seccomp: &LinuxSeccomp) -> Result<Vec<Instruction>, DriverError> {
    let default = action(seccomp.default_action(), seccomp.default_errno_ret())?;
    let mut verdicts: BTreeMap<u32, Verdict> = BTreeMap::new();
    for rule in seccomp.syscalls().iter().flatten() {
        let action = action(rule.action(), rule.errno_ret())?;
        for number in rule.names().iter().filter_map(|name| number(name)) {
            add(&mut verdicts, number, rule, action)?;
        }
    }
    let mut program = vec![
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 1, 0, THIS_ARCHITECTURE),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER),
    ];
    #[cfg(target_arch = "x86_64")]
    program.extend([
        (JUMP_IF_AT_LEAST, 0, 2, X32),
        // The number of a call that a debugger has cancelled.
        (JUMP_IF_EQUAL, 1, 0, u32::MAX),
        (RETURN, 0, 0, KILL_PROCESS),
    ]);
    program.extend(search(&ranges(verdicts, default), default)?);
    Ok(program)
}

fn add(
    verdicts: &mut BTreeMap<u32, Verdict>,
    number: u32,
    rule: &LinuxSyscall,
    action: u32,
) -> Result<(), DriverError> {
    let conditions = rule.args().clone().unwrap_or_default();
    let known = verdicts.get_mut(&number);
    match (known, conditions.is_empty()) {
        (None, true) => drop(verdicts.insert(number, Verdict::Always(action))),
        (None, false) => drop(verdicts.insert(number, Verdict::ByArguments(vec![(conditions, action)]))),
        (Some(Verdict::ByArguments(rules)), false) => rules.push((conditions, action)),
        (Some(_), _) => return Err(invalid(format!("several rules for system call {number}"))),
    }
    Ok(())
}

fn invalid(what: String) -> DriverError {
    DriverError::failed(DriverStep::MakeCallFilter, what)
}

fn number(name: &str) -> Option<u32> {
    let number: Sysno = name.parse().ok()?;
    u32::try_from(number.id()).ok()
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Result<u32, DriverError> {
    match action {
        LinuxSeccompAction::ScmpActAllow => Ok(ALLOW),
        LinuxSeccompAction::ScmpActErrno => Ok(ERRNO | errno.unwrap_or(1)),
        other => Err(invalid(format!("the action {other:?} is not supported"))),
    }
}

/// The start of each range of numbers with the same verdict, in ascending order. The first starts at 0.
fn ranges(verdicts: BTreeMap<u32, Verdict>, default: u32) -> Vec<(u32, Verdict)> {
    let mut ranges: Vec<(u32, Verdict)> = Vec::new();
    let mut push = |start: u32, verdict: Verdict| {
        if ranges.last().is_none_or(|(_, last)| *last != verdict) {
            ranges.push((start, verdict));
        }
    };
    let mut next = 0;
    for (number, verdict) in verdicts {
        if number > next {
            push(next, Verdict::Always(default));
        }
        push(number, verdict);
        next = number + 1;
    }
    push(next, Verdict::Always(default));
    ranges
}

/// A binary search for the range of the loaded number.
fn search(ranges: &[(u32, Verdict)], default: u32) -> Result<Vec<Instruction>, DriverError> {
    if let [(_, verdict)] = ranges {
        return match verdict {
            Verdict::Always(action) => Ok(vec![(RETURN, 0, 0, *action)]),
            Verdict::ByArguments(rules) => by_arguments(rules, default),
        };
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let start = upper.first().map_or(0, |(start, _)| *start);
    let (lower, upper) = (search(lower, default)?, search(upper, default)?);
    let length = u32::try_from(lower.len()).map_err(|_| invalid("it is too long".to_owned()))?;
    let mut program = match u8::try_from(length) {
        Ok(length) => vec![(JUMP_IF_AT_LEAST, length, 0, start)],
        // A conditional jump reaches 255 instructions.
        Err(_) => vec![(JUMP_IF_AT_LEAST, 0, 1, start), (JUMP, 0, 0, length)],
    };
    program.extend(lower);
    program.extend(upper);
    Ok(program)
}

fn by_arguments(
    rules: &[(Vec<LinuxSeccompArg>, u32)],
    default: u32,
) -> Result<Vec<Instruction>, DriverError> {
    let mut program = Vec::new();
    for (conditions, action) in rules {
        let blocks: Vec<Vec<Step>> = conditions.iter().map(condition).collect::<Result<_, _>>()?;
        let total: usize = blocks.iter().map(Vec::len).sum();
        let mut rest = total;
        for block in &blocks {
            for (position, step) in block.iter().enumerate() {
                let behind = block.len() - position - 1;
                // The instruction after the rule, which ends with a return.
                let fail = rest - position;
                program.push(step.resolve(behind, fail)?);
            }
            rest -= block.len();
        }
        program.push((RETURN, 0, 0, *action));
    }
    program.push((RETURN, 0, 0, default));
    Ok(program)
}

/// Where a comparison leads.
#[derive(Debug, Clone, Copy)]
enum Leads {
    On,
    /// Behind the condition, which holds.
    Pass,
    /// Behind the rule, which does not apply.
    Fail,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    code: u16,
    value: u32,
    yes: Leads,
    no: Leads,
}

impl Step {
    fn resolve(self, pass: usize, fail: usize) -> Result<Instruction, DriverError> {
        let distance = |leads| match leads {
            Leads::On => Ok(0),
            Leads::Pass => u8::try_from(pass).map_err(|_| invalid("a condition is too long".to_owned())),
            Leads::Fail => u8::try_from(fail).map_err(|_| invalid("a rule is too long".to_owned())),
        };
        Ok((self.code, distance(self.yes)?, distance(self.no)?, self.value))
    }
}

/// Compares all 64 bits of an argument, in two halves.
fn condition(argument: &LinuxSeccompArg) -> Result<Vec<Step>, DriverError> {
    use LinuxSeccompOperator as Op;
    let offset = u32::try_from(argument.index()).ok().filter(|index| *index < 6);
    let offset = offset.ok_or_else(|| invalid("a system call has six arguments".to_owned()))? * 8 + ARGUMENTS;
    let plain = |code, value| Step { code, value, yes: Leads::On, no: Leads::On };
    // Little-endian: the upper half is behind the lower one.
    let (load_upper, load_lower) = (plain(LOAD, offset + 4), plain(LOAD, offset));
    let (upper, lower) = halves(argument.value());
    let jump = |code, value, yes, no| Step { code, value, yes, no };
    let (on, pass, fail) = (Leads::On, Leads::Pass, Leads::Fail);
    Ok(match argument.op() {
        Op::ScmpCmpEq => vec![
            load_upper,
            jump(JUMP_IF_EQUAL, upper, on, fail),
            load_lower,
            jump(JUMP_IF_EQUAL, lower, on, fail),
        ],
        Op::ScmpCmpNe => vec![
            load_upper,
            jump(JUMP_IF_EQUAL, upper, on, pass),
            load_lower,
            jump(JUMP_IF_EQUAL, lower, fail, on),
        ],
        Op::ScmpCmpGe => vec![
            load_upper,
            jump(JUMP_IF_GREATER, upper, pass, on),
            jump(JUMP_IF_EQUAL, upper, on, fail),
            load_lower,
            jump(JUMP_IF_AT_LEAST, lower, on, fail),
        ],
        Op::ScmpCmpLt => vec![
            load_upper,
            jump(JUMP_IF_GREATER, upper, fail, on),
            jump(JUMP_IF_EQUAL, upper, on, pass),
            load_lower,
            jump(JUMP_IF_AT_LEAST, lower, fail, on),
        ],
        Op::ScmpCmpMaskedEq => {
            let (wanted_upper, wanted_lower) = halves(argument.value_two().unwrap_or(0));
            let compared = |load, mask, wanted| match (mask, wanted) {
                // Holds for all values.
                (0, 0) => vec![],
                _ => vec![load, plain(AND, mask), jump(JUMP_IF_EQUAL, wanted, on, fail)],
            };
            [compared(load_upper, upper, wanted_upper), compared(load_lower, lower, wanted_lower)].concat()
        }
        other => return Err(invalid(format!("the comparison {other:?} is not supported"))),
    })
}

fn halves(value: u64) -> (u32, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
    let (upper, lower) = ((value >> 32) as u32, value as u32);
    (upper, lower)
}

#[cfg(test)]
mod tests;
