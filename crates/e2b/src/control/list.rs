//! Lists of sandboxes: pages with a cursor, in the order of their starts. The published records are read, not the store, so a list shows
//! each change whose response was sent before.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{SandboxId, SandboxState, Timestamp};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use store::SandboxRecord;

use super::view::started_at;
use super::{Call, query, view};
use crate::error::E2bError;
use crate::options::{E2bOptions, has_options};

const NEXT: HeaderName = HeaderName::from_static("x-next-token");
const MAX_LIMIT: usize = 100;

/// The filters of a list.
#[derive(Debug, PartialEq, Eq)]
struct Filter {
    states: Vec<SandboxState>,
    metadata: BTreeMap<String, String>,
    template: Option<String>,
    started_after: Option<u64>,
    is_ascending: bool,
    limit: usize,
    after: Option<Position>,
}

type Listed = (Arc<SandboxRecord>, E2bOptions);

/// The place of a sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    started_at: u64,
    id: SandboxId,
}

impl Position {
    fn of(record: &SandboxRecord) -> Self {
        Self { started_at: started_at(record).0, id: record.id.clone() }
    }

    fn cursor(&self) -> String {
        format!("{}-{}", self.started_at, self.id.compact())
    }

    fn parse(text: &str) -> Option<Self> {
        let (started_at, id) = text.split_once('-')?;
        Some(Self { started_at: started_at.parse().ok()?, id: SandboxId::from_host_name(id)? })
    }
}

/// A page of running and paused sandboxes.
pub async fn list(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let filter = Filter::read(call.query.as_deref())?;
    let (page, next) = filter.page(call.api.service.engine.records_of(&call.caller.account));
    let items: Vec<_> = page.iter().map(|(record, own)| view::listed(record, own)).collect();
    let mut response = view::json(StatusCode::OK, &items);
    if let Some(next) = next.and_then(|next| HeaderValue::try_from(next.cursor()).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    Ok(response)
}

/// All running sandboxes, for old clients.
pub async fn running(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let filter = Filter::read(call.query.as_deref())?;
    let filter = Filter { states: vec![SandboxState::Running], limit: usize::MAX, after: None, ..filter };
    let (page, _) = filter.page(call.api.service.engine.records_of(&call.caller.account));
    let items: Vec<_> = page.iter().map(|(record, own)| view::listed(record, own)).collect();
    Ok(view::json(StatusCode::OK, &items))
}

impl Filter {
    fn read(text: Option<&str>) -> Result<Self, E2bError> {
        let query = query::pairs(text);
        let given = |name: &str| query.get(name).filter(|value| !value.is_empty());
        let invalid = |name: &str, allowed: &str| {
            let got = query.get(name).map_or("", String::as_str);
            E2bError::invalid(format!("{name} is {}; allowed: {allowed}", rules::quoted(got)))
        };
        let limit = match given("limit") {
            None => MAX_LIMIT,
            Some(text) => (text.parse().ok())
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| invalid("limit", "1 to 100"))?,
        };
        let state = |word: &str| match word {
            "running" => Ok(SandboxState::Running),
            "paused" => Ok(SandboxState::Paused),
            _ => Err(invalid("state", "running, paused, or both with a comma")),
        };
        let states = given("state").map_or("running,paused", String::as_str);
        Ok(Self {
            states: states.split(',').map(state).collect::<Result<_, _>>()?,
            metadata: given("metadata").map(|text| query::metadata(text)).unwrap_or_default(),
            template: given("template").cloned(),
            started_after: given("startedAfter")
                .map(|text| {
                    text.parse::<Timestamp>().map_err(|_| invalid("startedAfter", "a time in RFC 3339"))
                })
                .transpose()?
                .map(|at| at.0),
            is_ascending: match given("order").map(String::as_str) {
                None | Some("desc") => false,
                Some("asc") => true,
                Some(_) => return Err(invalid("order", "asc or desc")),
            },
            limit,
            after: given("nextToken")
                .map(|text| {
                    Position::parse(text).ok_or_else(|| invalid("nextToken", "a token of a response"))
                })
                .transpose()?,
        })
    }

    /// Whether a record matches, apart from its options.
    fn matches(&self, record: &SandboxRecord) -> bool {
        has_options(&record.config)
            && self.states.contains(&record.state())
            && self.started_after.is_none_or(|at| started_at(record).0 >= at)
            && self.metadata.iter().all(|(name, value)| record.config.metadata.get(name) == Some(value))
    }

    /// The page, and the position after which the next one begins.
    fn page(&self, mut records: Vec<Arc<SandboxRecord>>) -> (Vec<Listed>, Option<Position>) {
        records.retain(|record| self.matches(record));
        records.sort_by_cached_key(|record| Position::of(record));
        if !self.is_ascending {
            records.reverse();
        }
        if let Some(after) = &self.after {
            records.retain(|record| {
                let own = Position::of(record);
                if self.is_ascending { own > *after } else { own < *after }
            });
        }
        // Lazy: the options of records beyond the page are not parsed.
        let mut found = records.into_iter().filter_map(with_options).filter(|(_, own)| self.is_from(own));
        let page: Vec<Listed> = found.by_ref().take(self.limit).collect();
        let has_more = found.next().is_some();
        let last = page.last().filter(|_| has_more).map(|(record, _)| Position::of(record));
        (page, last)
    }

    fn is_from(&self, own: &E2bOptions) -> bool {
        self.template.as_ref().is_none_or(|template| own.template == *template)
    }
}

/// One malformed record does not hide the other sandboxes.
fn with_options(record: Arc<SandboxRecord>) -> Option<Listed> {
    match E2bOptions::of(&record) {
        Ok(own) => Some((record, own?)),
        Err(error) => {
            tracing::error!(sandbox = %record.id, cause = error.cause_text(), "a list leaves a sandbox out");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use admission::captured_log::CapturedLog;
    use serde_json::json;

    use super::*;

    /// The number of sandboxes on a host is not the work of a page. What is logged shows which options are read.
    #[test]
    fn options_are_read_up_to_the_end_of_the_page() {
        let options = |number, options| {
            let mut record = store::conformance::record(number);
            record.config.extensions.insert("e2b".to_owned(), options);
            Arc::new(record)
        };
        let (base, other) = (json!({ "template": "base" }), json!({ "template": "other" }));
        let malformed = json!({ "template": 7 });
        let all = [&base, &other, &base, &malformed, &base, &malformed, &base];
        let records: Vec<_> = (1..).zip(all).map(|(number, it)| options(number, it.clone())).collect();
        let is_shown = |log: &CapturedLog, at: usize| log.text().contains(records[at].id.as_str());
        let ids = |page: &[Listed]| page.iter().map(|(record, _)| record.id.clone()).collect::<Vec<_>>();
        let expected = |at: [usize; 2]| at.map(|at| records[at].id.clone()).to_vec();
        let log = CapturedLog::default();
        let capture = log.begin();
        let first = Filter::read(Some("order=asc&limit=2&template=base")).unwrap();
        let (page, next) = first.page(records.clone());
        assert_eq!(ids(&page), expected([0, 2]));
        assert_eq!(next, Some(Position::of(&records[2])));
        assert!(is_shown(&log, 3) && !is_shown(&log, 5), "{}", log.text());
        drop(capture);
        let (page, next) = Filter { after: next, ..first }.page(records.clone());
        assert_eq!((ids(&page), next), (expected([4, 6]), None));
    }

    #[test]
    fn a_cursor_comes_back() {
        let at = Position { started_at: 1_700_000_000_000, id: "sb_abcdefgh23".parse().unwrap() };
        assert_eq!(Position::parse(&at.cursor()), Some(at));
        for wrong in ["", "-", "1", "1-x", "x-sbabcdefgh23", "-1-sbabcdefgh23"] {
            assert_eq!(Position::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn filters_are_read_and_checked() {
        let all = Filter::read(None).unwrap();
        assert_eq!((all.limit, all.states.len(), all.is_ascending), (100, 2, false));
        let one = Filter::read(Some(
            "limit=3&state=paused&order=asc&startedAfter=2026-01-02T03%3A04%3A05.5%2B02%3A00&template=base",
        ))
        .unwrap();
        assert_eq!(
            (one.limit, one.states.as_slice(), one.is_ascending),
            (3, &[SandboxState::Paused][..], true)
        );
        assert_eq!(one.started_after, Some("2026-01-02T01:04:05.5Z".parse::<Timestamp>().unwrap().0));
        for wrong in [
            "limit=0",
            "limit=101",
            "limit=x",
            "state=terminated",
            "order=up",
            "startedAfter=now",
            "nextToken=x",
        ] {
            assert_eq!(Filter::read(Some(wrong)).unwrap_err().status.as_u16(), 400, "{wrong}");
        }
    }
}
