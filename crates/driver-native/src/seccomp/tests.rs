//! Runs compiled filters on a small machine and compares the verdicts with the rules they come from.

use super::*;

const EDGES: [u64; 12] = [0, 1, 2, 3, 10, 16, 17, 0xffff_ffff, 1 << 32, (1 << 32) + 2, 0x7e02_0000, u64::MAX];

/// What the kernel's machine does with a system call.
fn run(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let load = |offset: u32| match offset {
        NUMBER => number,
        ARCHITECTURE => architecture,
        _ => {
            let (upper, lower) = halves(arguments[((offset - ARGUMENTS) / 8) as usize]);
            if offset % 8 == 4 { upper } else { lower }
        }
    };
    let (mut at, mut value) = (0, 0);
    loop {
        let (code, yes, no, operand) = program[at];
        at += 1;
        let holds = match code {
            LOAD => {
                value = load(operand);
                continue;
            }
            AND => {
                value &= operand;
                continue;
            }
            JUMP => {
                at += operand as usize;
                continue;
            }
            RETURN => return operand,
            JUMP_IF_EQUAL => value == operand,
            JUMP_IF_GREATER => value > operand,
            JUMP_IF_AT_LEAST => value >= operand,
            other => panic!("unknown instruction {other:#x}"),
        };
        at += usize::from(if holds { yes } else { no });
    }
}

fn holds(argument: &LinuxSeccompArg, arguments: [u64; 6]) -> bool {
    let (value, wanted) = (arguments[argument.index()], argument.value());
    match argument.op() {
        LinuxSeccompOperator::ScmpCmpEq => value == wanted,
        LinuxSeccompOperator::ScmpCmpNe => value != wanted,
        LinuxSeccompOperator::ScmpCmpGe => value >= wanted,
        LinuxSeccompOperator::ScmpCmpLt => value < wanted,
        LinuxSeccompOperator::ScmpCmpMaskedEq => value & wanted == argument.value_two().unwrap_or(0),
        other => panic!("{other:?}"),
    }
}

/// The verdict according to the rules.
fn expected(seccomp: &LinuxSeccomp, call: u32, arguments: [u64; 6]) -> u32 {
    let rules = seccomp.syscalls().as_ref().unwrap().iter();
    let mut matching = rules.filter(|rule| {
        rule.names().iter().any(|name| number(name) == Some(call))
            && rule.args().iter().flatten().all(|argument| holds(argument, arguments))
    });
    matching.next().map_or(ERRNO | 38, |rule| action(rule.action(), rule.errno_ret()).unwrap())
}

#[test]
fn the_filter_has_the_verdicts_of_its_rules() {
    let seccomp = driver_host::seccomp().unwrap();
    let program = compile(&seccomp).unwrap();
    assert!(program.len() < 4096, "{} instructions", program.len());
    for call in (0..700).chain([0x3fff_ffff, u32::MAX]) {
        for first in EDGES {
            for second in [0, 1, 2, 3, 5, 0x80001, u64::MAX] {
                for third in [0, 6, 17, 58, 255, 256, 262, 1 << 32] {
                    let arguments = [first, second, third, 0, 0, 0];
                    let got = run(&program, THIS_ARCHITECTURE, call, arguments);
                    assert_eq!(got, expected(&seccomp, call, arguments), "call {call} {arguments:?}");
                }
            }
        }
    }
}

#[test]
fn calls_of_another_interface_end_the_process() {
    let program = compile(&driver_host::seccomp().unwrap()).unwrap();
    assert_eq!(run(&program, 0x4000_0003, 1, [0; 6]), KILL_PROCESS);
    #[cfg(target_arch = "x86_64")]
    for call in [0x4000_0000, 0x4000_003b, 0x7fff_ffff, 0xffff_fffe] {
        assert_eq!(run(&program, THIS_ARCHITECTURE, call, [0; 6]), KILL_PROCESS, "{call:#x}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn every_name_of_the_rules_is_known() {
    let seccomp = driver_host::seccomp().unwrap();
    let names = seccomp.syscalls().iter().flatten().flat_map(LinuxSyscall::names);
    let unknown: Vec<_> = names.filter(|name| number(name).is_none()).collect();
    assert!(unknown.is_empty(), "the crate `syscalls` does not know {unknown:?}");
}

#[test]
fn rules_that_contradict_each_other_are_refused() {
    let seccomp: LinuxSeccomp = serde_json::from_str(
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"action": "SCMP_ACT_ALLOW", "names": ["read"]},
            {"action": "SCMP_ACT_ERRNO", "names": ["read"]}]}"#,
    )
    .unwrap();
    assert!(compile(&seccomp).is_err());
}
