//! The output of a process, written into the log of a build line by line.

use api::BuildEvent;
use engine::{Channel, ProcessEnd, ProcessEvent};
use rules::LineSplitter;

use crate::log::BuildLog;

/// Writes the output of a process into a log, line by line.
pub struct OutputLog<'a> {
    log: &'a BuildLog,
    stdout: LineSplitter,
    stderr: LineSplitter,
}

impl<'a> OutputLog<'a> {
    /// Output of one process: the next one gets another value, as this one has begun lines.
    pub fn new(log: &'a BuildLog) -> Self {
        Self { log, stdout: LineSplitter::new(), stderr: LineSplitter::new() }
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
                    self.log.output(kind, &line);
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
                        self.log.output(kind, &line);
                    }
                }
                Some(end)
            }
        }
    }
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
    fn the_end_of_a_process_ends_its_lines() {
        let unfinished = || vec![output(Channel::Stderr, "no end"), output(Channel::Stdout, "also none")];
        assert!(logged(unfinished()).is_empty());
        let mut events = unfinished();
        events.push(ProcessEvent::Ended(ProcessEnd::Exited(0)));
        let expected = [(BuildEvent::Stdout, "also none"), (BuildEvent::Stderr, "no end")];
        assert_eq!(logged(events), expected.map(|(kind, text)| (kind, text.to_owned())));
    }

    #[test]
    fn the_log_says_that_output_was_dropped() {
        let events = logged(vec![ProcessEvent::Dropped, output(Channel::Stdout, "after\n")]);
        assert_eq!(events.len(), 2);
        assert!(events[0].0 == BuildEvent::Note && events[0].1.contains("dropped"), "{events:?}");
    }
}
