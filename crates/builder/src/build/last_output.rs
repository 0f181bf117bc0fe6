//! What a process has printed last, for the message of its failure. Used for start commands and their checks.

use engine::{Channel, ProcessEnd, ProcessEvent};
use rules::{LineSplitter, missing_program};

/// Most characters of a line.
const SHOWN: usize = 200;

/// The last line of a process, and the program that its shell has not found.
#[derive(Debug, Default)]
pub struct LastOutput {
    stdout: LineSplitter,
    stderr: LineSplitter,
    line: Option<String>,
    missing: Option<String>,
}

impl LastOutput {
    /// Adds an event of the process.
    pub fn add(&mut self, event: &ProcessEvent) {
        match event {
            ProcessEvent::Output(Channel::Stdout, bytes) => {
                let mut left = &bytes[..];
                while let Some(line) = self.stdout.next_piece(&mut left) {
                    self.keep(&line);
                }
            }
            ProcessEvent::Output(Channel::Stderr, bytes) => {
                let mut left = &bytes[..];
                while let Some(line) = self.stderr.next_piece(&mut left) {
                    self.keep_error(&line);
                }
            }
            ProcessEvent::Dropped => {}
            ProcessEvent::Ended(_) => {
                while let Some(line) = self.stdout.next_remainder() {
                    self.keep(&line);
                }
                while let Some(line) = self.stderr.next_remainder() {
                    self.keep_error(&line);
                }
            }
        }
    }

    fn keep_error(&mut self, line: &str) {
        if let Some(program) = missing_program(line) {
            self.missing = Some(program.chars().take(SHOWN).collect());
        }
        self.keep(line);
    }

    fn keep(&mut self, line: &str) {
        let shown: String =
            line.trim().chars().filter(|character| !character.is_control()).take(SHOWN).collect();
        if !shown.is_empty() {
            self.line = Some(shown);
        }
    }

    /// The program that a shell of the process has not found.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// How the process has failed, with its last line. `what` is the process.
    pub fn failure(&self, what: &str, end: &ProcessEnd) -> String {
        let mut message = match end {
            ProcessEnd::Exited(code) => format!("{what} exited with code {code}"),
            ProcessEnd::Signalled(signal) => format!("{what} was ended by {signal}"),
            ProcessEnd::OutOfMemory { message, .. } => format!("{what} was killed: {message}"),
            ProcessEnd::TimedOut => format!("{what} took too long"),
            ProcessEnd::Lost(_) => format!("{what} ended"),
        };
        if let Some(line) = &self.line {
            message.push_str(": ");
            message.push_str(line);
        }
        if let Some(program) = &self.missing {
            message.push_str(&format!("; the image has no program '{program}'"));
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(events: &[(Channel, &'static str)]) -> LastOutput {
        let mut last = LastOutput::default();
        for (channel, text) in events {
            last.add(&ProcessEvent::Output(*channel, text.as_bytes().into()));
        }
        last.add(&ProcessEvent::Ended(ProcessEnd::Exited(1)));
        last
    }

    #[test]
    fn a_failure_has_the_last_line() {
        let code = ProcessEnd::Exited(1);
        let failure = |events: &[(Channel, &'static str)]| output(events).failure("it", &code);
        assert_eq!(failure(&[]), "it exited with code 1");
        assert_eq!(
            failure(&[(Channel::Stdout, "one\n\n"), (Channel::Stdout, " ")]),
            "it exited with code 1: one"
        );
        assert_eq!(
            failure(&[(Channel::Stdout, "on"), (Channel::Stdout, "e\ntwo")]),
            "it exited with code 1: two"
        );
        let signalled = ProcessEnd::Signalled("SIGKILL".to_owned());
        let last = output(&[(Channel::Stderr, "\u{1b}why\n")]);
        assert_eq!(last.failure("it", &signalled), "it was ended by SIGKILL: why");
        assert_eq!(
            output(&[(Channel::Stdout, "x")]).failure("it", &ProcessEnd::TimedOut),
            "it took too long: x"
        );
    }

    #[test]
    fn a_failure_names_a_missing_program() {
        let line = "bash: line 1: ss: command not found\n";
        let last = output(&[(Channel::Stderr, line), (Channel::Stdout, "after")]);
        assert_eq!(last.missing(), Some("ss"));
        let message = last.failure("it", &ProcessEnd::Exited(1));
        assert_eq!(message, "it exited with code 1: after; the image has no program 'ss'");
        // What a program prints is not the shell's.
        assert_eq!(output(&[(Channel::Stdout, line)]).missing(), None);
    }
}
