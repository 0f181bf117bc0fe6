//! What a failed check of a start command means: it is repeated, the reader of the log is told, or the build gives up.

/// Time between two notes about failing checks.
const NOTE_EVERY_MS: u64 = 10_000;
/// A start command may install the program that a check runs. One that has not after this long does not.
const MISSING_FOR_MS: u64 = 30_000;
const SHELLS: [&str; 6] = ["ash", "bash", "busybox", "dash", "sh", "zsh"];

/// The failed checks of one start command. Times are of any clock that begins with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedChecks {
    /// A program that the image lacks, and since when all checks need it.
    missing: Option<(String, u64)>,
    noted_at_ms: Option<u64>,
}

/// What follows a failed check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailedCheck {
    Repeat,
    /// As [`Self::Repeat`], with a note in the log.
    RepeatWithNote,
    /// No repetition can succeed.
    GiveUp,
}

impl FailedChecks {
    /// After another failed check, which lacks a program.
    pub fn add(&mut self, now_ms: u64, missing: Option<&str>) -> AfterFailedCheck {
        let since = |program: &str| match &self.missing {
            Some((known, since)) if known == program => *since,
            _ => now_ms,
        };
        self.missing = missing.map(|program| (program.to_owned(), since(program)));
        let has_passed = |since: u64, wait_ms: u64| now_ms.saturating_sub(since) >= wait_ms;
        if self.missing.as_ref().is_some_and(|(_, since)| has_passed(*since, MISSING_FOR_MS)) {
            return AfterFailedCheck::GiveUp;
        }
        let is_due = match self.noted_at_ms {
            Some(noted) => has_passed(noted, NOTE_EVERY_MS),
            None => missing.is_some() || has_passed(0, NOTE_EVERY_MS),
        };
        if is_due {
            self.noted_at_ms = Some(now_ms);
            return AfterFailedCheck::RepeatWithNote;
        }
        AfterFailedCheck::Repeat
    }
}

/// The program that a shell has not found, by a line of its error output: `bash: line 1: ss: command not found`,
/// `/bin/sh: 1: ss: not found`.
pub fn missing_program(line: &str) -> Option<&str> {
    let line = line.trim_end();
    let text = line.strip_suffix(": command not found").or_else(|| line.strip_suffix(": not found"))?;
    let (before, program) = text.rsplit_once(": ")?;
    let shell = before.split(':').next().unwrap_or_default();
    let shell = shell.rsplit('/').next().unwrap_or_default();
    let is_name = !program.is_empty() && !program.contains(char::is_whitespace);
    (is_name && SHELLS.contains(&shell)).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    use AfterFailedCheck::{GiveUp, Repeat, RepeatWithNote};

    #[test]
    fn a_note_comes_every_ten_seconds() {
        let mut checks = FailedChecks::default();
        let after = [0, 5_000, 9_999, 10_000, 15_000, 20_000, 600_000].map(|now| checks.add(now, None));
        let (no, note) = (Repeat, RepeatWithNote);
        assert_eq!(after, [no, no, no, note, no, note, note]);
    }

    #[test]
    fn a_program_that_stays_missing_ends_the_checks() {
        let mut checks = FailedChecks::default();
        assert_eq!(checks.add(100, Some("ss")), RepeatWithNote);
        assert_eq!(checks.add(30_000, Some("ss")), RepeatWithNote);
        assert_eq!(checks.add(30_100, Some("ss")), GiveUp);
    }

    #[test]
    fn a_program_may_be_installed_meanwhile() {
        let mut checks = FailedChecks::default();
        for (now, missing) in [(0, Some("ss")), (29_000, None), (31_000, Some("ss")), (60_000, Some("curl"))]
        {
            assert_ne!(checks.add(now, missing), GiveUp, "{now}");
        }
        assert_eq!(checks.add(90_000, Some("curl")), GiveUp);
    }

    #[test]
    fn missing_programs_are_those_that_shells_name() {
        for (line, program) in [
            ("bash: line 1: ss: command not found", Some("ss")),
            ("/bin/bash: line 12: my-tool: command not found\r", Some("my-tool")),
            ("/bin/sh: 1: ss: not found", Some("ss")),
            ("sh: ss: not found", Some("ss")),
            ("curl: (22) The requested URL returned error: 404: not found", None),
            ("config: not found", None),
            ("bash: line 1: : command not found", None),
            ("bash: a b: command not found", None),
            ("ss: command not found", None),
            ("", None),
        ] {
            assert_eq!(missing_program(line), program, "{line}");
        }
    }
}
