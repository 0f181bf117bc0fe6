//! The log of a sandbox, in the two forms that their clients read: the events of the service. What programs print is not part of it.
//!
//! A sandbox that has ended has its log as long as its events are retained.

use std::collections::BTreeMap;

use api::{EventKind, SandboxId, Timestamp};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use rules::TimeMs;
use serde_json::{Value, json};
use store::{Event, EventFilter, EventListing, EventOrder, EventPage};

use super::{Call, query, view};
use crate::error::E2bError;
use crate::options::has_options;

/// Entries of a response by default, and at most.
const LIMIT: usize = 1000;
/// Pages of events that one request reads to find entries with a text.
const MAX_PAGES: usize = 10;
/// The source of the entries, which their clients can filter by.
const LOGGER: &str = "sandboxd";
/// The parts of an event that say most about it, the first that it has.
const DETAILS: [&str; 5] = ["command", "message", "path", "domain", "reason"];

/// How grave an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warn, Self::Error];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    const fn of(kind: EventKind) -> Self {
        match kind {
            EventKind::SandboxError
            | EventKind::ExecError
            | EventKind::FileError
            | EventKind::AgentError
            | EventKind::TemplateFailed => Self::Error,
            EventKind::NetworkRefused => Self::Warn,
            _ => Self::Info,
        }
    }
}

/// Which entries a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    from: Option<TimeMs>,
    /// The first that is not included.
    until: Option<TimeMs>,
    pub limit: usize,
    pub order: EventOrder,
    level: Level,
    search: Option<String>,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    at: TimeMs,
    level: Level,
    message: String,
    fields: BTreeMap<String, String>,
}

/// The log as entries.
pub async fn entries(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    let found = read(call, id, &Query::of_entries(call.query.as_deref())?).await?;
    let shown: Vec<Value> = found.iter().map(Entry::shown).collect();
    Ok(view::json(StatusCode::OK, &json!({ "logs": shown })))
}

/// The log with a line as JSON for each entry, for old clients.
pub async fn lines(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    let found = read(call, id, &Query::of_lines(call.query.as_deref())?).await?;
    let lines: Vec<Value> = found.iter().map(Entry::line).collect();
    let shown: Vec<Value> = found.iter().map(Entry::shown).collect();
    Ok(view::json(StatusCode::OK, &json!({ "logs": lines, "logEntries": shown })))
}

/// The entries of a sandbox of this API, or of one that has ended.
async fn read(call: &Call, id: &SandboxId, query: &Query) -> Result<Vec<Entry>, E2bError> {
    let record = call.api.service.engine.record(id);
    let is_own = |account: &str| *account == *call.caller.account;
    if record.as_ref().is_some_and(|record| !is_own(&record.account) || !has_options(&record.config)) {
        return Err(E2bError::no_sandbox(&id.compact()));
    }
    let account = call.caller.account.to_string();
    if record.is_none() {
        let any =
            EventFilter { account: account.clone(), sandbox: Some(id.clone()), ..EventFilter::default() };
        let first = EventPage { limit: 1, ..EventPage::default() };
        if events(call, &any, first).await?.items.is_empty() {
            return Err(E2bError::no_sandbox(&id.compact()));
        }
    }
    let filter = query.filter(account, id);
    let (mut found, mut after, mut before) = (Vec::new(), None, None);
    for _ in 0..MAX_PAGES {
        let page = EventPage { after, before, offset: 0, limit: LIMIT as u32, order: query.order };
        let listing = events(call, &filter, page).await?;
        let last = listing.items.last().map(|event| event.sequence);
        let fits = listing.items.iter().map(Entry::of).filter(|entry| query.finds(&entry.message));
        found.extend(fits.take(query.limit - found.len()));
        if found.len() == query.limit || !listing.more {
            break;
        }
        match query.order {
            EventOrder::OldestFirst => after = last,
            EventOrder::NewestFirst => before = last,
        }
    }
    Ok(found)
}

async fn events(call: &Call, filter: &EventFilter, page: EventPage) -> Result<EventListing, E2bError> {
    let listed = call.api.service.store.list_events(filter, page).await;
    listed.map_err(|error| E2bError::of_engine(error.into()))
}

impl Query {
    /// `start` and `limit`.
    fn of_lines(text: Option<&str>) -> Result<Self, E2bError> {
        let given = query::pairs(text);
        Ok(Self {
            from: number(&given, "start")?.map(TimeMs),
            until: None,
            limit: limit(&given)?,
            order: EventOrder::OldestFirst,
            level: Level::Debug,
            search: None,
        })
    }

    /// `cursor`, `limit`, `direction`, `level` and `search`. Entries at the time of the cursor are included.
    pub fn of_entries(text: Option<&str>) -> Result<Self, E2bError> {
        let given = query::pairs(text);
        let word = |name: &str| given.get(name).map(String::as_str).filter(|word| !word.is_empty());
        let invalid = |name: &str, allowed: &str| {
            let got = rules::quoted(word(name).unwrap_or_default());
            E2bError::invalid(format!("{name} is {got}; allowed: {allowed}"))
        };
        let order = match word("direction") {
            None | Some("forward") => EventOrder::OldestFirst,
            Some("backward") => EventOrder::NewestFirst,
            Some(_) => return Err(invalid("direction", "forward or backward")),
        };
        let level = match word("level") {
            None => Level::Debug,
            Some(name) => Level::ALL
                .into_iter()
                .find(|level| level.name() == name)
                .ok_or_else(|| invalid("level", "debug, info, warn or error"))?,
        };
        let cursor = number(&given, "cursor")?.map(TimeMs);
        let (from, until) = match order {
            EventOrder::OldestFirst => (cursor, None),
            EventOrder::NewestFirst => (None, cursor.map(|at| TimeMs(at.0.saturating_add(1)))),
        };
        let search = word("search").map(str::to_owned);
        Ok(Self { from, until, limit: limit(&given)?, order, level, search })
    }

    fn filter(&self, account: String, id: &SandboxId) -> EventFilter {
        let kinds = match self.level {
            Level::Debug | Level::Info => Default::default(),
            least => EventKind::ALL.iter().copied().filter(|kind| Level::of(*kind) >= least).collect(),
        };
        EventFilter {
            account,
            sandbox: Some(id.clone()),
            kinds,
            run: None,
            since: self.from,
            until: self.until,
        }
    }

    fn finds(&self, message: &str) -> bool {
        self.search.as_ref().is_none_or(|text| message.contains(text.as_str()))
    }

    /// Whether an entry of another log fits.
    pub fn takes(&self, at: TimeMs, level: Level, message: &str) -> bool {
        let is_between = self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until);
        is_between && self.level <= level && self.finds(message)
    }
}

fn number(given: &BTreeMap<String, String>, name: &str) -> Result<Option<u64>, E2bError> {
    let given = given.get(name).filter(|value| !value.is_empty());
    given
        .map(|value| {
            value.parse().map_err(|_| {
                let got = rules::quoted(value);
                E2bError::invalid(format!("{name} is {got}; allowed: a Unix time in milliseconds"))
            })
        })
        .transpose()
}

fn limit(given: &BTreeMap<String, String>) -> Result<usize, E2bError> {
    let Some(text) = given.get("limit").filter(|value| !value.is_empty()) else { return Ok(LIMIT) };
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT).contains(limit));
    limit.ok_or_else(|| E2bError::invalid(format!("limit is {}; allowed: 1 to {LIMIT}", rules::quoted(text))))
}

impl Entry {
    fn of(event: &Event) -> Self {
        let level = event.kind.parse().map_or(Level::Info, Level::of);
        let mut fields = BTreeMap::from([("event".to_owned(), event.kind.clone())]);
        for (name, value) in
            event.data.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
        {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            fields.insert(name.clone(), text);
        }
        let detail = DETAILS.iter().find_map(|name| fields.get(*name));
        let message = match detail {
            Some(detail) => format!("{}: {detail}", event.kind),
            None => event.kind.clone(),
        };
        Self { at: event.at, level, message, fields }
    }

    fn shown(&self) -> Value {
        let Self { at, level, message, fields } = self;
        json!({ "timestamp": Timestamp::from(*at), "level": level.name(), "message": message, "fields": fields })
    }

    /// The fields of an entry are those of the object in its line.
    fn line(&self) -> Value {
        let Self { at, level, message, fields } = self;
        let mut line = json!(fields);
        line["level"] = level.name().into();
        line["logger"] = LOGGER.into();
        line["message"] = message.as_str().into();
        json!({ "timestamp": Timestamp::from(*at), "line": line.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, data: Value) -> Event {
        Event {
            sequence: 1,
            sandbox: "sb_abcdefgh23".parse().unwrap(),
            account: "one".to_owned(),
            run: String::new(),
            at: TimeMs(1_700_000_000_000),
            kind: kind.as_str().to_owned(),
            data,
        }
    }

    #[test]
    fn an_event_is_an_entry_and_a_line() {
        let data = json!({ "command": "echo \"hi\"", "exitCode": 3, "signal": null, "message": "m" });
        let entry = Entry::of(&event(EventKind::ExecCompleted, data));
        let shown = entry.shown();
        assert_eq!(shown["message"], "exec.completed: echo \"hi\"");
        assert_eq!(
            shown["fields"],
            json!({ "event": "exec.completed", "command": "echo \"hi\"", "exitCode": "3", "message": "m" })
        );
        assert_eq!(
            (&shown["level"], &shown["timestamp"]),
            (&json!("info"), &json!("2023-11-14T22:13:20.000Z"))
        );
        let line: Value = serde_json::from_str(entry.line()["line"].as_str().unwrap()).unwrap();
        assert_eq!((&line["level"], &line["logger"]), (&json!("info"), &json!("sandboxd")));
        assert_eq!((&line["exitCode"], &line["message"]), (&json!("3"), &shown["message"]));
        let refused = Entry::of(&event(EventKind::NetworkRefused, json!({ "domain": "a.example" })));
        assert_eq!((refused.level, refused.message.as_str()), (Level::Warn, "network.refused: a.example"));
    }

    #[test]
    fn queries_are_read_and_checked() {
        let all = Query::of_entries(None).unwrap();
        assert_eq!((all.limit, all.order, all.from, all.until), (1000, EventOrder::OldestFirst, None, None));
        let asked = "cursor=5&limit=2&direction=backward&level=warn&search=a%20b";
        let asked = Query::of_entries(Some(asked)).unwrap();
        assert_eq!((asked.limit, asked.order), (2, EventOrder::NewestFirst));
        assert_eq!((asked.from, asked.until), (None, Some(TimeMs(6))));
        let kinds = asked.filter("one".to_owned(), &"sb_abcdefgh23".parse().unwrap()).kinds;
        assert!(kinds.contains(&EventKind::NetworkRefused) && kinds.contains(&EventKind::ExecError));
        assert!(!kinds.contains(&EventKind::ExecStarted));
        assert!(asked.finds("x a b") && !asked.finds("ab"));
        assert_eq!(Query::of_lines(Some("start=7&limit=1")).unwrap().from, Some(TimeMs(7)));
        for wrong in ["cursor=x", "limit=0", "limit=1001", "direction=up", "level=loud"] {
            assert_eq!(Query::of_entries(Some(wrong)).unwrap_err().status.as_u16(), 400, "{wrong}");
        }
        assert!(Query::of_lines(Some("start=-1")).is_err());
    }

    #[test]
    fn only_failures_are_errors_and_only_refused_connections_warn() {
        let of = |level: Level| {
            let kinds = EventKind::ALL.iter().filter(move |kind| Level::of(**kind) == level);
            kinds.map(|kind| kind.as_str()).collect::<Vec<_>>()
        };
        let errors = ["sandbox.error", "template.failed", "exec.error", "file.error", "agent.error"];
        assert_eq!(of(Level::Error), errors);
        assert_eq!(of(Level::Warn), ["network.refused"]);
        assert_eq!(of(Level::Debug), [""; 0], "nothing is below the default");
    }

    #[test]
    fn a_level_selects_the_kinds_at_and_above_it() {
        let id = "sb_abcdefgh23".parse().unwrap();
        let kinds = |level: &str| {
            let query = Query::of_entries(Some(&format!("level={level}"))).unwrap();
            query.filter("one".to_owned(), &id).kinds.len()
        };
        // Without kinds a filter selects all.
        assert_eq!((kinds("debug"), kinds("info"), kinds("")), (0, 0, 0));
        assert_eq!((kinds("warn"), kinds("error")), (6, 5));
    }

    #[test]
    fn the_cursor_is_included_in_either_direction() {
        let forward = Query::of_entries(Some("cursor=5")).unwrap();
        assert_eq!((forward.from, forward.until), (Some(TimeMs(5)), None));
        let last = format!("cursor={}&direction=backward", u64::MAX);
        let backward = Query::of_entries(Some(&last)).unwrap();
        assert_eq!((backward.from, backward.until), (None, Some(TimeMs(u64::MAX))));
    }

    #[test]
    fn the_message_has_the_part_that_says_most() {
        for (data, message) in [
            (json!({ "reason": "r", "path": "/p", "command": "c" }), "file.read: c"),
            (json!({ "reason": "r", "path": "/p", "message": "m" }), "file.read: m"),
            (json!({ "reason": "r", "path": "/p" }), "file.read: /p"),
            (json!({ "command": null, "reason": "r" }), "file.read: r"),
            (json!({ "bytes": 5 }), "file.read"),
            (json!("no object"), "file.read"),
        ] {
            assert_eq!(Entry::of(&event(EventKind::FileRead, data.clone())).message, message, "{data}");
        }
        let later = Event { kind: "file.burnt".to_owned(), ..event(EventKind::FileRead, json!({})) };
        assert_eq!(Entry::of(&later).level, Level::Info, "a kind of a later version");
        let nested = event(EventKind::FileRead, json!({ "list": [1, "a"], "is": true }));
        let fields = Entry::of(&nested).fields;
        assert_eq!((fields["list"].as_str(), fields["is"].as_str()), ("[1,\"a\"]", "true"));
    }
}
