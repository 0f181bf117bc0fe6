//! The output of a process, written into the log of a build line by line.

use api::BuildEvent;
use engine::{Channel, ProcessEnd, ProcessEvent};
use rules::LineSplitter;

use crate::log::BuildLog;

/// What pip, npm, curl, git and OpenSSL print when a proxy has replaced a certificate.
const UNTRUSTED: [&str; 5] = [
    "CERTIFICATE_VERIFY_FAILED",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "self-signed certificate in certificate chain",
    "unable to get local issuer certificate",
    "server certificate verification failed",
];
const UNTRUSTED_HINT: &str = "; a certificate was not trusted: behind a proxy with a certificate authority of its own, copy that into the image \
     (docs/cookbook/corporate_ca.sh)";

/// Writes the output of a process into a log, line by line.
pub struct OutputLog<'a> {
    log: &'a BuildLog,
    stdout: LineSplitter,
    stderr: LineSplitter,
    has_untrusted_certificate: bool,
}

impl<'a> OutputLog<'a> {
    /// Output of one process: the next one gets another value, as this one has begun lines.
    pub fn new(log: &'a BuildLog) -> Self {
        Self {
            log,
            stdout: LineSplitter::new(),
            stderr: LineSplitter::new(),
            has_untrusted_certificate: false,
        }
    }

    /// What the output says of a failure, for the end of its message.
    pub fn hint(&self) -> &'static str {
        if self.has_untrusted_certificate { UNTRUSTED_HINT } else { "" }
    }

    /// Returns the end of the process, if that is the event.
    pub fn add(&mut self, event: ProcessEvent) -> Option<ProcessEnd> {
        match event {
            ProcessEvent::Output(channel, bytes) => {
                let (splitter, kind) = match channel {
                    Channel::Stdout => (&mut self.stdout, BuildEvent::Stdout),
                    Channel::Stderr => (&mut self.stderr, BuildEvent::Stderr),
                };
                let mut left = &bytes[..];
                while let Some(line) = splitter.next_piece(&mut left) {
                    self.has_untrusted_certificate |= UNTRUSTED.iter().any(|text| line.contains(text));
                    self.log.output(kind, last_state(&line));
                }
                None
            }
            ProcessEvent::Dropped => {
                self.log.note("output was dropped: it came faster than it could be read");
                None
            }
            ProcessEvent::Ended(end) => {
                let rests = [(&mut self.stdout, BuildEvent::Stdout), (&mut self.stderr, BuildEvent::Stderr)];
                for (splitter, kind) in rests {
                    while let Some(line) = splitter.next_remainder() {
                        self.log.output(kind, last_state(&line));
                    }
                }
                Some(end)
            }
        }
    }
}

/// What a terminal would show in the end of a line that was overwritten from its beginning, as lines with a progress are.
fn last_state(line: &str) -> &str {
    line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(channel: Channel, text: &'static str) -> ProcessEvent {
        ProcessEvent::Output(channel, text.as_bytes().into())
    }

    /// What the log has of a process.
    fn logged(events: Vec<ProcessEvent>) -> Vec<(BuildEvent, String)> {
        let dir = tempfile::tempdir().unwrap();
        let log = BuildLog::open(&dir.path().join("log")).unwrap();
        let mut output = OutputLog::new(&log);
        let count = events.len();
        for (at, event) in events.into_iter().enumerate() {
            let is_end = matches!(event, ProcessEvent::Ended(_));
            assert_eq!(output.add(event).is_some(), is_end, "event {at} of {count}");
        }
        let events = log.read_from(0).unwrap().unwrap().next_now().unwrap().unwrap_or_default();
        events.into_iter().map(|event| (event.kind, event.data)).collect()
    }

    #[test]
    fn lines_are_put_together_for_each_channel() {
        let events = vec![
            output(Channel::Stdout, "one\ntw"),
            output(Channel::Stderr, "wa"),
            output(Channel::Stdout, "o\n"),
            output(Channel::Stderr, "rning\r\n"),
        ];
        let expected =
            [(BuildEvent::Stdout, "one"), (BuildEvent::Stdout, "two"), (BuildEvent::Stderr, "warning")];
        assert_eq!(logged(events), expected.map(|(kind, text)| (kind, text.to_owned())));
    }

    #[test]
    fn a_line_that_was_overwritten_has_its_last_state() {
        let events = vec![
            output(Channel::Stdout, "Reading 5%\rReading 100%\r\rdone\n50%\r100%\r\n"),
            output(Channel::Stdout, "1\r2\r"),
            ProcessEvent::Ended(ProcessEnd::Exited(0)),
        ];
        let texts: Vec<String> = logged(events).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["done", "100%", "2"]);
    }

    #[test]
    fn the_end_of_a_process_ends_its_lines() {
        let unfinished = || vec![output(Channel::Stderr, "no end"), output(Channel::Stdout, "also none")];
        assert!(logged(unfinished()).is_empty());
        let mut events = unfinished();
        events.push(ProcessEvent::Ended(ProcessEnd::Exited(0)));
        let expected = [(BuildEvent::Stdout, "also none"), (BuildEvent::Stderr, "no end")];
        assert_eq!(logged(events), expected.map(|(kind, text)| (kind, text.to_owned())));
    }

    #[test]
    fn a_certificate_that_was_not_trusted_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let log = BuildLog::open(&dir.path().join("log")).unwrap();
        let mut pip = OutputLog::new(&log);
        pip.add(output(Channel::Stderr, "Collecting x\n[SSL: CERTIFICATE_VERIFY_FAILED] certificate\n"));
        assert!(pip.hint().contains("corporate_ca.sh"));
        let mut other = OutputLog::new(&log);
        other.add(output(Channel::Stderr, "No matching distribution\n"));
        assert_eq!(other.hint(), "");
    }

    #[test]
    fn the_log_says_that_output_was_dropped() {
        let events = logged(vec![ProcessEvent::Dropped, output(Channel::Stdout, "after\n")]);
        assert_eq!(events.len(), 2);
        assert!(events[0].0 == BuildEvent::Note && events[0].1.contains("dropped"), "{events:?}");
    }
}
