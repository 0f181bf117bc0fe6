//! The devices that a sandbox can use: null, zero, full, random, urandom, tty, and pseudo-terminals. Nodes of others can be created,
//! where the kernel allows that at all, but not opened.
//!
//! v1 has a list in each cgroup. v2 has a BPF program for each cgroup; the kernel removes it with the cgroup.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Character devices: major number, and minor number if not all.
const ALLOWED: [(i32, Option<i32>); 8] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(2)),
    (136, None),
];

/// Limits the devices of a new cgroup.
pub fn limit_v1(dir: &Path) -> io::Result<()> {
    let allow = |line: String| fs::write(dir.join("devices.allow"), line);
    fs::write(dir.join("devices.deny"), "a")?;
    allow("c *:* m".to_owned())?;
    allow("b *:* m".to_owned())?;
    ALLOWED.iter().try_for_each(|(major, minor)| {
        let minor = minor.map_or("*".to_owned(), |minor| minor.to_string());
        allow(format!("c {major}:{minor} rwm"))
    })
}

/// An instruction of the kernel's BPF machine, as `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper half.
    registers: u8,
    offset: i16,
    value: i32,
}

const fn instruction(code: u8, registers: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers, offset, value }
}

// Codes of instructions, from the kernel's <linux/bpf_common.h> and <linux/bpf.h>.
const LOAD_WORD: u8 = 0x61;
const SHIFT_RIGHT: u8 = 0x77;
const AND: u8 = 0x57;
const SET: u8 = 0xb7;
const SKIP_IF_EQUAL: u8 = 0x15;
const SKIP_IF_NOT_EQUAL: u8 = 0x55;
const EXIT: u8 = 0x95;
// Registers: the result, the context, and three for its parts.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
const CHARACTER_DEVICE: i32 = 2;
const CREATE_NODE: i32 = 1;

/// The kernel passes `struct bpf_cgroup_dev_ctx`: kind and access in the halves of one word, major and minor number.
fn program() -> Vec<Instruction> {
    let load = |register: u8, offset| instruction(LOAD_WORD, CONTEXT << 4 | register, offset, 0);
    let allow = [instruction(SET, RESULT, 0, 1), instruction(EXIT, 0, 0, 0)];
    let mut program = vec![
        load(KIND, 0),
        instruction(SET, RESULT, 0, 0),
        load(ACCESS, 0),
        instruction(SHIFT_RIGHT, ACCESS, 0, 16),
        instruction(AND, KIND, 0, 0xffff),
        load(MAJOR, 4),
        load(MINOR, 8),
        instruction(SKIP_IF_NOT_EQUAL, ACCESS, 2, CREATE_NODE),
    ];
    program.extend(allow);
    program.push(instruction(SKIP_IF_EQUAL, KIND, 1, CHARACTER_DEVICE));
    program.push(instruction(EXIT, 0, 0, 0));
    for (major, minor) in ALLOWED {
        let rest = if minor.is_some() { 3 } else { 2 };
        program.push(instruction(SKIP_IF_NOT_EQUAL, MAJOR, rest, major));
        program.extend(minor.map(|minor| instruction(SKIP_IF_NOT_EQUAL, MINOR, 2, minor)));
        program.extend(allow);
    }
    program.push(instruction(EXIT, 0, 0, 0));
    program
}

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_ATTACH: libc::c_long = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
/// Programs of parents and of other owners stay in force.
const BPF_F_ALLOW_MULTI: u32 = 2;

/// The first fields of the kernel's `union bpf_attr` for loading a program.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// The program of this daemon, which is loaded when it is first needed. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct DeviceProgram(Arc<OnceLock<OwnedFd>>);

impl DeviceProgram {
    /// Limits the devices of a new cgroup.
    pub fn limit(&self, dir: &Path) -> io::Result<()> {
        let program = match self.0.get() {
            Some(program) => program,
            // Loaded twice if two first sandboxes start at once; one of the two is dropped.
            None => load_v2().map(|program| self.0.get_or_init(|| program))?,
        };
        limit_v2(dir, program)
    }
}

/// Loads the program.
fn load_v2() -> io::Result<OwnedFd> {
    let instructions = program();
    let load = Load {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: instructions.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        ..Load::default()
    };
    let program = bpf(BPF_PROG_LOAD, &load)?;
    // SAFETY: the kernel has just opened this descriptor for the program, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(program).map_err(io::Error::other)?) })
}

/// Limits the devices of a new cgroup by the loaded program.
fn limit_v2(dir: &Path, program: &OwnedFd) -> io::Result<()> {
    let cgroup = fs::File::open(dir)?;
    let number = |fd: i32| fd.unsigned_abs();
    let attach = Attach {
        target: number(cgroup.as_raw_fd()),
        program: number(program.as_raw_fd()),
        kind: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    bpf(BPF_PROG_ATTACH, &attach).map(drop)
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads a live struct of the given size, which begins like its own, and the memory that it points to.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel's machine returns for a device: 1 if the access is allowed.
    fn run(kind: i32, access: i32, major: i32, minor: i32) -> i64 {
        let context = [kind | access << 16, major, minor];
        let program = program();
        let (mut registers, mut at) = ([0_i64; 11], 0);
        loop {
            let Instruction { code, registers: pair, offset, value } = program[at];
            let to = usize::from(pair & 15);
            at += 1;
            let skip = match code {
                LOAD_WORD => {
                    registers[to] = i64::from(context[usize::try_from(offset).unwrap() / 4]);
                    continue;
                }
                SHIFT_RIGHT => {
                    registers[to] >>= value;
                    continue;
                }
                AND => {
                    registers[to] &= i64::from(value);
                    continue;
                }
                SET => {
                    registers[to] = i64::from(value);
                    continue;
                }
                EXIT => return registers[0],
                SKIP_IF_EQUAL => registers[to] == i64::from(value),
                SKIP_IF_NOT_EQUAL => registers[to] != i64::from(value),
                other => panic!("unknown instruction {other:#x}"),
            };
            at += if skip { usize::try_from(offset).unwrap() } else { 0 };
        }
    }

    #[test]
    fn only_listed_devices_can_be_opened() {
        for kind in [1, CHARACTER_DEVICE] {
            for (major, minor) in (0..300).flat_map(|major| (0..20).map(move |minor| (major, minor))) {
                let known = |(allowed, number): &(i32, Option<i32>)| {
                    *allowed == major && number.is_none_or(|number| number == minor)
                };
                let listed = kind == CHARACTER_DEVICE && ALLOWED.iter().any(known);
                for access in [2, 4, 6, 7] {
                    assert_eq!(
                        run(kind, access, major, minor) == 1,
                        listed,
                        "{kind} {access} {major}:{minor}"
                    );
                }
                assert_eq!(run(kind, CREATE_NODE, major, minor), 1);
            }
        }
    }
}
