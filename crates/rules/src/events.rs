//! Events: queries, and the part of a command that events contain.
//!
//! A query is a list of percent-decoded pairs. Unknown parameters are ignored.

use std::collections::BTreeSet;

use api::bounds::{MAX_SAFE_INTEGER, PAGE_LIMIT, RUN_ID_CHARS};
use api::{EventId, EventKind, RunId, SandboxId, Timestamp};

use crate::TimeMs;
use crate::listing::{QueryError, repeated, whole_number};
use crate::text::quoted::quoted;

/// Bytes of a command that its events contain: a command may hold secrets, and readers of a log see its events.
pub const SHOWN_COMMAND_BYTES: usize = 4096;
/// More than the number of types.
const TYPES_MAX: usize = 50;

/// A query of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Empty: all types.
    pub kinds: BTreeSet<EventKind>,
    pub sandbox: Option<SandboxId>,
    pub run: Option<RunId>,
    pub since: Option<TimeMs>,
    pub until: Option<TimeMs>,
    pub after: Option<EventId>,
    pub before: Option<EventId>,
    /// The start of a stream without the header `Last-Event-ID`.
    pub last: Option<EventId>,
    pub newest_first: bool,
    pub limit: u32,
    pub offset: u64,
}

/// The parameters as text.
#[derive(Default)]
struct Parameters {
    types: Vec<String>,
    named: Vec<(&'static str, String)>,
}

const NAMES: [&str; 10] =
    ["sandboxId", "runId", "since", "until", "after", "before", "lastEventId", "order", "limit", "offset"];

/// Reads the query of a list or a stream of events.
pub fn event_query(pairs: impl IntoIterator<Item = (String, String)>) -> Result<EventQuery, QueryError> {
    let mut parameters = Parameters::default();
    for (name, value) in pairs {
        parameters.take(name, value)?;
    }
    Ok(EventQuery {
        kinds: parameters.kinds()?,
        sandbox: parameters.read("sandboxId", "a sandbox's id, such as 'sb_4h1v8x2k9qz7m3t5w0ry'")?,
        run: parameters.read("runId", "1 to 128 visible ASCII characters")?,
        since: parameters.time("since")?,
        until: parameters.time("until")?,
        after: parameters.read("after", EVENT_ID)?,
        before: parameters.read("before", EVENT_ID)?,
        last: parameters.read("lastEventId", EVENT_ID)?,
        newest_first: match parameters.find("order") {
            None | Some("asc") => false,
            Some("desc") => true,
            Some(other) => return Err(QueryError::new("order", other, "'asc' or 'desc'")),
        },
        limit: match parameters.find("limit") {
            Some(text) => whole_number("limit", text, PAGE_LIMIT.min, PAGE_LIMIT.max)?,
            None => PAGE_LIMIT.default,
        },
        offset: match parameters.find("offset") {
            Some(text) => whole_number("offset", text, 0, MAX_SAFE_INTEGER)?,
            None => 0,
        },
    })
}

const EVENT_ID: &str = "an event's id, such as 'ev_0000000000000042'";

impl Parameters {
    fn take(&mut self, name: String, value: String) -> Result<(), QueryError> {
        if name == "type" {
            if self.types.len() >= TYPES_MAX {
                let got = format!("given more than {TYPES_MAX} times");
                return Err(QueryError { field: name, got, allowed: format!("at most {TYPES_MAX} types") });
            }
            self.types.push(value);
            return Ok(());
        }
        let Some(known) = NAMES.into_iter().find(|known| *known == name) else { return Ok(()) };
        if let Some(first) = self.find(known) {
            return Err(repeated(name, first, &value));
        }
        self.named.push((known, value));
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    fn read<T: std::str::FromStr>(&self, name: &str, allowed: &str) -> Result<Option<T>, QueryError> {
        let read = |text: &str| text.parse().map_err(|_| QueryError::new(name, text, allowed));
        self.find(name).map(read).transpose()
    }

    fn time(&self, name: &str) -> Result<Option<TimeMs>, QueryError> {
        let at: Option<Timestamp> = self.read(name, "a time, such as '2026-01-02T03:04:05.678Z'")?;
        Ok(at.map(|at| TimeMs(at.0)))
    }

    fn kinds(&self) -> Result<BTreeSet<EventKind>, QueryError> {
        let mut kinds = BTreeSet::new();
        for text in &self.types {
            let fitting = |kind: &EventKind| match text.strip_suffix('*') {
                Some(prefix) => prefix.ends_with('.') && kind.as_str().starts_with(prefix),
                None => kind.as_str() == text,
            };
            let mut found = EventKind::ALL.iter().copied().filter(fitting).peekable();
            if found.peek().is_none() {
                let allowed = "an event type such as 'exec.completed', or a group such as 'exec.*'";
                return Err(QueryError::new("type", text, allowed));
            }
            kinds.extend(found);
        }
        Ok(kinds)
    }
}

/// The part of a command that an event contains, and whether it was shortened.
pub fn shown_command(command: &str) -> (&str, bool) {
    let most = command.len().min(SHOWN_COMMAND_BYTES);
    let end = (0..=most).rev().find(|at| command.is_char_boundary(*at)).unwrap_or(0);
    (&command[..end], end < command.len())
}

/// The value of a header `X-Run-Id` is not a run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header X-Run-Id is {got}; allowed: 1 to {RUN_ID_CHARS} visible ASCII characters")]
pub struct BadRunHeader {
    pub got: String,
}

/// Reads the header's value.
pub fn run_header(value: &[u8]) -> Result<RunId, BadRunHeader> {
    let text = String::from_utf8_lossy(value);
    text.parse().map_err(|_| BadRunHeader { got: quoted(&text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Result<EventQuery, QueryError> {
        event_query(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn an_empty_query_matches_all_events() {
        let all = query(&[("unknown", "x")]).unwrap();
        assert_eq!((all.limit, all.offset, all.newest_first, all.kinds.len()), (20, 0, false, 0));
        assert_eq!((all.sandbox, all.run, all.since, all.until), (None, None, None, None));
        assert_eq!((all.after, all.before, all.last), (None, None, None));
    }

    #[test]
    fn everything_given_is_read() {
        let read = query(&[
            ("type", "exec.*"),
            ("type", "sandbox.paused"),
            ("type", "exec.error"),
            ("sandboxId", "sb_aaaaaaaa"),
            ("runId", "run-7"),
            ("since", "1970-01-01T00:00:01Z"),
            ("until", "1970-01-01T00:00:02.5Z"),
            ("after", "ev_0000000000000007"),
            ("before", "ev_0000000000000009"),
            ("lastEventId", "ev_0000000000000008"),
            ("order", "desc"),
            ("limit", "100"),
            ("offset", "3"),
        ])
        .unwrap();
        let kinds: Vec<&str> = read.kinds.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(
            kinds,
            ["sandbox.paused", "exec.started", "exec.completed", "exec.streamed", "exec.error"]
        );
        assert_eq!((read.since, read.until), (Some(TimeMs(1000)), Some(TimeMs(2500))));
        assert_eq!((read.after, read.before), (Some(EventId(7)), Some(EventId(9))));
        assert_eq!((read.last, read.newest_first, read.limit, read.offset), (Some(EventId(8)), true, 100, 3));
        assert_eq!(read.run.unwrap().as_str(), "run-7");
    }

    #[test]
    fn invalid_event_query_parameters_are_named() {
        for (name, value) in [
            ("type", ""),
            ("type", "*"),
            ("type", "exec"),
            ("type", "exec*"),
            ("type", "nothing.*"),
            ("type", "exec.completed.*"),
            ("sandboxId", "sb_.."),
            ("runId", ""),
            ("runId", "a b"),
            ("since", "yesterday"),
            ("until", "1"),
            ("after", "42"),
            ("before", "ev_1"),
            ("lastEventId", ""),
            ("order", "up"),
            ("limit", "0"),
            ("limit", "101"),
            ("offset", "-1"),
        ] {
            let error = query(&[(name, value)]).unwrap_err();
            assert_eq!(error.field, name, "{error}");
            assert!(error.to_string().contains("allowed:"), "{error}");
        }
        let error = query(&[("order", "asc"), ("order", "desc")]).unwrap_err();
        assert_eq!(error.to_string(), "order is given twice, 'asc' and 'desc'; allowed: one value");
        let many = vec![("type", "exec.*"); 51];
        assert_eq!(query(&many).unwrap_err().field, "type");
    }

    #[test]
    fn long_commands_are_cut_between_characters() {
        assert_eq!(shown_command("true"), ("true", false));
        let fits = "x".repeat(SHOWN_COMMAND_BYTES);
        assert_eq!(shown_command(&fits), (fits.as_str(), false));
        let long = format!("{}€", "x".repeat(SHOWN_COMMAND_BYTES - 1));
        assert_eq!(shown_command(&long), (&long[..SHOWN_COMMAND_BYTES - 1], true));
    }

    #[test]
    fn a_run_is_read_from_a_header() {
        assert_eq!(run_header(b"run-1").unwrap().as_str(), "run-1");
        for value in [&b""[..], b"a b", b"\xff", "ü".as_bytes()] {
            assert!(run_header(value).is_err(), "{value:?}");
        }
    }
}
