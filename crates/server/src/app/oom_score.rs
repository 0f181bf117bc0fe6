//! Keeps the kernel's out-of-memory killer away from the daemon and its lxcfs.
//!
//! Every sandbox loses them with their end, and none with that of one of its own programs. What the daemon starts inherits the score,
//! except sandboxes, which get the default one: see `rootfs::reset_oom_score`.

use std::fs;
use std::io::{self, ErrorKind};
use std::sync::Once;

/// Processes with it are killed last, and not never: a daemon that takes all memory must end.
const SCORE: i32 = -999;

/// The number of the capability.
const CAP_SYS_RESOURCE: u32 = 24;
/// What a daemon lacks whose kernel does not let it lower a score.
const NOT_PERMITTED: &str = "the capability CAP_SYS_RESOURCE is missing, so oom_score_adj cannot be lowered; grant it (in a \
    container: --cap-add SYS_RESOURCE), or start the daemon with the score -999 (OOMScoreAdjust=-999 of systemd, or \
    --oom-score-adj -999 of a container)";

/// Protects a process of the host, as `/proc` names it. The first failure is logged: everything works without, and others have the
/// same cause.
pub fn protect(process: &str) {
    static LOGGED: Once = Once::new();
    protect_or_log(process, &LOGGED);
}

fn protect_or_log(process: &str, logged: &Once) {
    if let Err(error) = lower(process) {
        let reason = reason(&error);
        logged.call_once(|| {
            tracing::warn!(
                process,
                reason,
                "the daemon or its lxcfs is not protected from the kernel's out-of-memory killer"
            );
        });
    }
}

/// Why a daemon that is started as this process was could not lower its score, and what to do about it. Only looks.
pub fn lack() -> Option<String> {
    let score: i32 = fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    (score > SCORE && !may_lower(&status)).then(|| NOT_PERMITTED.to_owned())
}

/// Whether a process with this status, as `/proc` shows it, has CAP_SYS_RESOURCE.
fn may_lower(status: &str) -> bool {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    capabilities.is_some_and(|set| set >> CAP_SYS_RESOURCE & 1 == 1)
}

/// What is wrong, and what the operator can do about it.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => NOT_PERMITTED.to_owned(),
        _ => format!("oom_score_adj cannot be read or written: {error}"),
    }
}

fn lower(process: &str) -> io::Result<()> {
    let file = format!("/proc/{process}/oom_score_adj");
    let score: i32 = fs::read_to_string(&file)?.trim().parse().map_err(io::Error::other)?;
    if score > SCORE { fs::write(&file, SCORE.to_string()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use admission::captured_log::CapturedLog;

    use super::*;

    #[test]
    fn the_first_failure_is_logged() {
        let (log, logged) = (CapturedLog::default(), Once::new());
        let _capture = log.begin();
        for process in ["none", "neither"] {
            protect_or_log(process, &logged);
        }
        let lines = log.of_target("sandboxd::app::oom_score");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["fields"]["process"], "none");
    }

    #[test]
    fn the_capability_is_read_from_the_status() {
        assert!(may_lower("Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n"));
        assert!(!may_lower("Name:\tx\nCapEff:\t000001fffeffffff\n"));
        assert!(!may_lower("Name:\tx\n"));
    }

    #[test]
    fn a_missing_capability_is_named_with_what_to_do() {
        let text = reason(&ErrorKind::PermissionDenied.into());
        for part in ["CAP_SYS_RESOURCE", "oom_score_adj", "OOMScoreAdjust=-999"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!reason(&ErrorKind::NotFound.into()).contains("CAP_SYS_RESOURCE"));
    }
}
