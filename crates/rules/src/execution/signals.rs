//! Names of signals as Linux numbers them on x86-64 and arm64.

use std::borrow::Cow;

const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];
/// The first and last real-time signals that the C library leaves to programs.
const REALTIME: std::ops::RangeInclusive<i32> = 34..=64;

/// The name of a signal. Every number has one, because numbers come from inside the sandbox.
pub fn signal_name(number: i32) -> Cow<'static, str> {
    let known = number
        .checked_sub(1)
        .and_then(|index| usize::try_from(index).ok())
        .and_then(|index| NAMES.get(index));
    match known {
        Some(name) => Cow::Borrowed(name),
        None if number == *REALTIME.start() => Cow::Borrowed("SIGRTMIN"),
        None if REALTIME.contains(&number) => Cow::Owned(format!("SIGRTMIN+{}", number - REALTIME.start())),
        None => Cow::Owned(format!("SIG{number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_names() {
        for (number, name) in [
            (1, "SIGHUP"),
            (2, "SIGINT"),
            (6, "SIGABRT"),
            (7, "SIGBUS"),
            (9, "SIGKILL"),
            (10, "SIGUSR1"),
            (11, "SIGSEGV"),
            (13, "SIGPIPE"),
            (15, "SIGTERM"),
            (17, "SIGCHLD"),
            (19, "SIGSTOP"),
            (24, "SIGXCPU"),
            (31, "SIGSYS"),
            (34, "SIGRTMIN"),
            (37, "SIGRTMIN+3"),
            (64, "SIGRTMIN+30"),
            (33, "SIG33"),
            (65, "SIG65"),
            (0, "SIG0"),
            (i32::MIN, "SIG-2147483648"),
        ] {
            assert_eq!(signal_name(number), name);
        }
    }
}
