//! Bounds and defaults of the fields of requests, for the checks in `rules` and the schemas of the OpenAPI document. Attributes
//! of utoipa take only literals, so some numbers are repeated there; a test of the schemas compares them with these constants.

/// The bounds of a value, and its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range<T> {
    pub min: T,
    pub max: T,
    pub default: T,
}

impl Range<u32> {
    /// The range with nothing below a value.
    #[must_use]
    pub fn raised_to(self, least: u32) -> Self {
        Self { min: self.min.max(least), max: self.max.max(least), default: self.default.max(least) }
    }
}

/// The largest integer that every JSON client can represent.
pub const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Code for the interpreter.
pub const CODE_BYTES: usize = 1 << 20;

/// Allowed numbers of vCPUs.
pub const CPU: [u32; 3] = [2, 4, 8];
/// The number of vCPUs of a create without one.
pub const CPU_DEFAULT: u32 = 2;
/// Memory of a sandbox, in MiB.
pub const MEMORY_MB: Range<u32> = Range { min: 2048, max: 16_384, default: 4096 };
/// Disk of a sandbox, in MiB.
pub const DISK_MB: Range<u32> = Range { min: 5120, max: 51_200, default: 10_240 };
/// Running time of a sandbox.
pub const TIMEOUT_MS: Range<u64> = Range { min: 1, max: 86_400_000, default: 300_000 };
/// Time without activity until a sandbox is paused; 0 for never.
pub const IDLE_TIMEOUT_MS: Range<u64> = Range { min: 0, max: MAX_SAFE_INTEGER, default: 120_000 };

/// The longest name of an image.
pub const IMAGE_CHARS: usize = 512;
/// The working directory of commands in sandboxes that set none.
pub const WORKDIR_DEFAULT: &str = "/workspace";
/// The longest path that the kernel accepts.
pub const PATH_BYTES: usize = 4095;
/// The longest name of a file, without its directories.
pub const PATH_PART_BYTES: usize = 255;

/// The most environment variables of a sandbox, and of a command.
pub const ENV_VARIABLES: usize = 1000;
/// All variables together, with their names. Linux passes no more to a process.
pub const ENV_BYTES: usize = 256 << 10;

/// The most entries of the metadata of a sandbox, snapshot or template.
pub const METADATA_KEYS: usize = 20;
/// The longest key of metadata.
pub const METADATA_KEY_CHARS: usize = 256;
/// The longest value of metadata.
pub const METADATA_VALUE_CHARS: usize = 256;

/// The longest name of a sandbox. It is part of host names, whose labels are no longer.
pub const SANDBOX_NAME_CHARS: usize = 63;
/// The longest name of a snapshot.
pub const SNAPSHOT_NAME_CHARS: usize = 128;
/// New sandboxes of one fork.
pub const FORK_COUNT: Range<u32> = Range { min: 1, max: 100, default: 1 };

/// Names in `network.egress.allow`.
pub const EGRESS_ENTRIES: usize = 1000;
/// Entries of `network.egress.allowNetworks`, and of `denyNetworks`. The kernel looks addresses up in both lists.
pub const EGRESS_NETWORKS: usize = 64;
/// The longest domain name in an egress policy, as in DNS.
pub const DOMAIN_BYTES: usize = 253;
/// The longest part between dots of a domain name, as in DNS.
pub const LABEL_BYTES: usize = 63;
/// Ports in `network.ingress.allowPorts`.
pub const INGRESS_PORTS: usize = 100;

/// The longest command.
pub const COMMAND_BYTES: usize = 65_536;
/// How long an attached command may run.
pub const EXECUTE_TIMEOUT_MS: Range<u64> = Range { min: 1, max: 300_000, default: 60_000 };
/// A day: the maximum running time of a sandbox. A detached command without a timeout has no limit of its own.
pub const DETACHED_TIMEOUT_MS_MAX: u64 = TIMEOUT_MS.max;
/// How long a detached command whose stored output is full and unread waits for a reader.
pub const READER_TIMEOUT_MS: Range<u64> = Range { min: 0, max: TIMEOUT_MS.max, default: 120_000 };
/// The width of a terminal, in characters.
pub const COLS: Range<u16> = Range { min: 1, max: 1000, default: 80 };
/// The height of a terminal, in characters.
pub const ROWS: Range<u16> = Range { min: 1, max: 1000, default: 24 };

/// A port has no default.
pub const PORT: Range<u16> = Range { min: 1, max: u16::MAX, default: 0 };
/// Lifetime of a port's token: at most a week, an hour by default.
pub const TOKEN_LIFETIME_MS: Range<u64> = Range { min: 1000, max: 7 * 24 * 3_600_000, default: 3_600_000 };

/// Items of one page.
pub const PAGE_LIMIT: Range<u32> = Range { min: 1, max: 100, default: 20 };
/// The longest id of a run.
pub const RUN_ID_CHARS: usize = 128;
/// The longest idempotency key.
pub const IDEMPOTENCY_KEY_CHARS: usize = 255;
/// The data of one posted event, as JSON.
pub const EVENT_DATA_BYTES: usize = 16 << 10;

/// The signals that a client may send to an execution, and their numbers.
pub const SIGNALS: &[(&str, u8)] = &[
    ("SIGHUP", 1),
    ("SIGINT", 2),
    ("SIGQUIT", 3),
    ("SIGABRT", 6),
    ("SIGKILL", 9),
    ("SIGUSR1", 10),
    ("SIGUSR2", 12),
    ("SIGALRM", 14),
    ("SIGTERM", 15),
    ("SIGCONT", 18),
    ("SIGSTOP", 19),
    ("SIGTSTP", 20),
    ("SIGWINCH", 28),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_range_has_nothing_below_the_value() {
        let range = Range { min: 2, max: 8, default: 4 };
        for (least, raised) in [
            (0, (2, 8, 4)),
            (2, (2, 8, 4)),
            (3, (3, 8, 4)),
            (5, (5, 8, 5)),
            (8, (8, 8, 8)),
            // Such as a snapshot from before the operator's bound was lowered.
            (9, (9, 9, 9)),
        ] {
            let Range { min, max, default } = range.raised_to(least);
            assert_eq!((min, max, default), raised, "{least}");
        }
    }

    #[test]
    fn each_default_is_within_its_bounds() {
        fn check<T: PartialOrd + std::fmt::Debug + Copy>(ranges: &[Range<T>]) {
            for range in ranges {
                assert!((range.min..=range.max).contains(&range.default), "{range:?}");
            }
        }
        check(&[MEMORY_MB, DISK_MB, FORK_COUNT, PAGE_LIMIT]);
        check(&[TIMEOUT_MS, IDLE_TIMEOUT_MS, EXECUTE_TIMEOUT_MS, READER_TIMEOUT_MS, TOKEN_LIFETIME_MS]);
        check(&[COLS, ROWS]);
        assert!(CPU.contains(&CPU_DEFAULT) && CPU.is_sorted());
    }

    #[test]
    fn signals_have_the_numbers_of_linux_and_one_name_each() {
        assert!(SIGNALS.is_sorted_by(|(_, one), (_, next)| one < next), "sorted by number, none twice");
        for (name, number) in [("SIGKILL", 9), ("SIGTERM", 15), ("SIGCONT", 18), ("SIGWINCH", 28)] {
            assert!(SIGNALS.contains(&(name, number)), "{name}");
        }
    }
}
