//! Events as their readers want them: a page in the order of the numbers, and the exact total, from one snapshot.
//!
//! A page is a walk along an index of the run, the sandbox or the account; where kinds are asked for, one walk for each of them,
//! merged. Totals are sums of kept ones by hour, so a filter by time counts no more than the two hours it cuts; the kept ones
//! also say between which numbers the events of its hours lie. Only a run and a sandbox together are counted one by one.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::read::all;
use super::rows;
use super::trouble::Outcome;
use crate::{Event, EventFilter, EventListing, EventOrder, EventPage, MAX_PAGE};

/// As the schema's triggers have it.
const HOUR_MS: i64 = 3_600_000;
const COLUMNS: &str = "sequence, sandbox, account, at, kind, data, run";

pub(super) fn list(
    connection: &mut Connection,
    filter: &EventFilter,
    page: EventPage,
) -> Outcome<EventListing> {
    let snapshot = connection.transaction()?;
    let search = Search::new(filter);
    if !search.is_of_its_account(&snapshot)? {
        return Ok(EventListing { items: Vec::new(), total: 0, more: false });
    }
    let total = search.total(&snapshot)?;
    let limit = page.limit.min(MAX_PAGE) as usize;
    let mut items = if total == 0 { Vec::new() } else { search.items(&snapshot, page)? };
    let more = items.len() > limit;
    items.truncate(limit);
    Ok(EventListing { items, total, more })
}

pub(super) fn after(
    connection: &mut Connection,
    filter: &EventFilter,
    after: u64,
    limit: u32,
) -> Outcome<(Vec<Event>, u64)> {
    let snapshot = connection.transaction()?;
    let last = last(&snapshot)?;
    let search = Search::new(filter);
    let page = EventPage { after: Some(after), limit, ..EventPage::default() };
    let mut items = search.items(&snapshot, page)?;
    let limit = limit.min(MAX_PAGE) as usize;
    let upto = if items.len() > limit {
        items.truncate(limit);
        items.last().map_or(after, |event| event.sequence)
    } else {
        last.max(after)
    };
    Ok((items, upto))
}

pub(super) fn last(connection: &Connection) -> Outcome<u64> {
    let mut statement = connection.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?;
    let last: Option<i64> = statement.query_row([], |row| row.get(0)).optional()?;
    rows::unsigned(last.unwrap_or(0))
}

/// Values of one statement, by the place they get in it.
#[derive(Default)]
struct Values(Vec<Value>);

impl Values {
    fn text(&mut self, text: &str) -> String {
        self.0.push(Value::Text(text.to_owned()));
        format!("?{}", self.0.len())
    }

    fn number(&mut self, number: i64) -> String {
        self.0.push(Value::Integer(number));
        format!("?{}", self.0.len())
    }
}

/// A stretch of numbers, both ends in it.
#[derive(Clone, Copy)]
struct Stretch {
    first: i64,
    last: i64,
}

/// A stretch of time: from the one on, before the other.
#[derive(Clone, Copy)]
struct Span {
    since: i64,
    until: i64,
}

struct Search<'a> {
    filter: &'a EventFilter,
    span: Option<Span>,
}

impl<'a> Search<'a> {
    fn new(filter: &'a EventFilter) -> Self {
        // No stored time is past this range.
        let bound =
            |at: Option<rules::TimeMs>, none| at.map_or(none, |at| i64::try_from(at.0).unwrap_or(i64::MAX));
        let span = Span { since: bound(filter.since, 0), until: bound(filter.until, i64::MAX) };
        let timed = filter.since.is_some() || filter.until.is_some();
        Self { filter, span: timed.then_some(span) }
    }

    /// A sandbox's totals do not say whose they are. All its events are of one account.
    fn is_of_its_account(&self, connection: &Connection) -> Outcome<bool> {
        let Some(sandbox) = &self.filter.sandbox else { return Ok(true) };
        let sql = "SELECT account FROM events INDEXED BY events_of_a_sandbox WHERE sandbox = ?1 LIMIT 1";
        let mut statement = connection.prepare_cached(sql)?;
        let account: Option<String> = statement.query_row([sandbox.as_str()], |row| row.get(0)).optional()?;
        Ok(account.is_some_and(|account| account == self.filter.account))
    }

    /// The scope of the kept totals, where one has all that is asked for.
    fn scope(&self) -> Option<String> {
        let EventFilter { account, sandbox, run, .. } = self.filter;
        match (run, sandbox) {
            (Some(_), Some(_)) => None,
            (Some(run), None) => Some(format!("r{run} {account}")),
            (None, Some(sandbox)) => Some(format!("s{sandbox}")),
            (None, None) => Some(format!("a{account}")),
        }
    }

    /// Which walks lead to all that fits: one for each kind where an index has kinds.
    fn kinds(&self) -> Vec<Option<&'a str>> {
        if self.filter.run.is_some() || self.filter.kinds.is_empty() {
            return vec![None];
        }
        self.filter.kinds.iter().map(|kind| Some(kind.as_str())).collect()
    }

    /// `FROM ... WHERE ...` of one walk.
    fn walk(
        &self,
        kind: Option<&str>,
        values: &mut Values,
        stretch: Option<Stretch>,
        span: Option<Span>,
    ) -> String {
        let EventFilter { account, sandbox, run, kinds, .. } = self.filter;
        let index = match (run, sandbox, kind) {
            (Some(_), ..) => "events_of_a_run",
            (None, Some(_), None) => "events_of_a_sandbox",
            (None, Some(_), Some(_)) => "events_of_a_kind_of_a_sandbox",
            (None, None, None) => "events_of_an_account",
            (None, None, Some(_)) => "events_of_a_kind",
        };
        let mut sql = format!("FROM events INDEXED BY {index} WHERE account = {}", values.text(account));
        if let Some(run) = run {
            // The index has no others, which its reader has to say.
            sql += &format!(" AND run = {} AND run <> ''", values.text(run));
            if !kinds.is_empty() {
                let places: Vec<String> = kinds.iter().map(|kind| values.text(kind)).collect();
                sql += &format!(" AND kind IN ({})", places.join(", "));
            }
        }
        if let Some(sandbox) = sandbox {
            sql += &format!(" AND sandbox = {}", values.text(sandbox.as_str()));
        }
        if let Some(kind) = kind {
            sql += &format!(" AND kind = {}", values.text(kind));
        }
        if let Some(Stretch { first, last }) = stretch {
            sql += &format!(" AND sequence BETWEEN {} AND {}", values.number(first), values.number(last));
        }
        if let Some(Span { since, until }) = span {
            sql += &format!(" AND at >= {} AND at < {}", values.number(since), values.number(until));
        }
        sql
    }

    fn total(&self, connection: &Connection) -> Outcome<u64> {
        let Some(scope) = self.scope() else { return self.count(connection, None, self.span) };
        let Some(Span { since, until }) = self.span else {
            return self.kept(connection, &scope, 0, i64::MAX);
        };
        if since >= until {
            return Ok(0);
        }
        let (first, end) = (since.div_euclid(HOUR_MS) + i64::from(since % HOUR_MS != 0), until / HOUR_MS);
        if first > end {
            return self.part_of_hour(connection, &scope, Span { since, until });
        }
        let before =
            self.part_of_hour(connection, &scope, Span { since, until: first.saturating_mul(HOUR_MS) })?;
        let behind = self.part_of_hour(connection, &scope, Span { since: end * HOUR_MS, until })?;
        Ok(before + self.kept(connection, &scope, first, end)? + behind)
    }

    /// The sum of whole hours, from the one on and before the other.
    fn kept(&self, connection: &Connection, scope: &str, first: i64, end: i64) -> Outcome<u64> {
        let (from, values) = self.hours(scope, first, end);
        let sql = format!("SELECT coalesce(sum(count), 0) {from}");
        let mut statement = connection.prepare_cached(&sql)?;
        rows::unsigned(statement.query_row(params_from_iter(values.0), |row| row.get(0))?)
    }

    fn hours(&self, scope: &str, first: i64, end: i64) -> (String, Values) {
        let mut values = Values::default();
        let mut from = format!("FROM event_totals WHERE scope = {}", values.text(scope));
        if !self.filter.kinds.is_empty() {
            let places: Vec<String> = self.filter.kinds.iter().map(|kind| values.text(kind)).collect();
            from += &format!(" AND kind IN ({})", places.join(", "));
        }
        from += &format!(" AND hour >= {} AND hour < {}", values.number(first), values.number(end));
        (from, values)
    }

    /// Counted along an index, between the numbers that the hour's events lie between.
    fn part_of_hour(&self, connection: &Connection, scope: &str, span: Span) -> Outcome<u64> {
        if span.since >= span.until {
            return Ok(0);
        }
        let hour = span.since / HOUR_MS;
        let Some(stretch) = self.stretch(connection, scope, hour, hour.saturating_add(1))? else {
            return Ok(0);
        };
        self.count(connection, Some(stretch), Some(span))
    }

    /// Between which numbers all events of these hours lie; nothing where there are none.
    fn stretch(
        &self,
        connection: &Connection,
        scope: &str,
        first: i64,
        end: i64,
    ) -> Outcome<Option<Stretch>> {
        let (from, values) = self.hours(scope, first, end);
        let mut statement = connection.prepare_cached(&format!("SELECT min(first), max(last) {from}"))?;
        let found: (Option<i64>, Option<i64>) =
            statement.query_row(params_from_iter(values.0), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(found.0.zip(found.1).map(|(first, last)| Stretch { first, last }))
    }

    fn count(&self, connection: &Connection, stretch: Option<Stretch>, span: Option<Span>) -> Outcome<u64> {
        let mut count = 0;
        for kind in self.kinds() {
            let mut values = Values::default();
            let sql = format!("SELECT count(*) {}", self.walk(kind, &mut values, stretch, span));
            let mut statement = connection.prepare_cached(&sql)?;
            count += rows::unsigned(statement.query_row(params_from_iter(values.0), |row| row.get(0))?)?;
        }
        Ok(count)
    }

    /// One more than the page has room for, if there are as many.
    fn items(&self, connection: &Connection, page: EventPage) -> Outcome<Vec<Event>> {
        let Some(stretch) = self.bounds(connection, page)? else { return Ok(Vec::new()) };
        let Ok(offset) = i64::try_from(page.offset) else { return Ok(Vec::new()) };
        let (sql, values) = self.page_sql(page, stretch, offset);
        all(connection, &sql, params_from_iter(values.0), rows::event)
    }

    /// The numbers that the page's own bounds and the time leave.
    fn bounds(&self, connection: &Connection, page: EventPage) -> Outcome<Option<Stretch>> {
        let number = |number: Option<u64>, none| {
            number.map_or(none, |number| i64::try_from(number).unwrap_or(i64::MAX))
        };
        let first = number(page.after, -1).saturating_add(1);
        let mut stretch =
            Stretch { first, last: number(page.before, i64::MAX) - i64::from(page.before.is_some()) };
        if let (Some(span), Some(scope)) = (self.span, self.scope()) {
            let (first, end) = (span.since / HOUR_MS, (span.until / HOUR_MS).saturating_add(1));
            let Some(hours) = self.stretch(connection, &scope, first, end)? else { return Ok(None) };
            stretch.first = stretch.first.max(hours.first);
            stretch.last = stretch.last.min(hours.last);
        }
        Ok((stretch.first <= stretch.last).then_some(stretch))
    }

    /// Each walk ends when it alone would fill the page; only the rows of the page are looked up.
    fn page_sql(&self, page: EventPage, stretch: Stretch, offset: i64) -> (String, Values) {
        let mut values = Values::default();
        let limit = values.number(i64::from(page.limit.min(MAX_PAGE)) + 1);
        let offset = values.number(offset);
        let order = match page.order {
            EventOrder::OldestFirst => "ORDER BY sequence",
            EventOrder::NewestFirst => "ORDER BY sequence DESC",
        };
        let walks: Vec<String> = self
            .kinds()
            .into_iter()
            .map(|kind| {
                let walk = self.walk(kind, &mut values, Some(stretch), self.span);
                format!("SELECT sequence FROM (SELECT sequence {walk} {order} LIMIT {offset} + {limit})")
            })
            .collect();
        let walks = walks.join(" UNION ALL ");
        let found = format!("{walks} {order} LIMIT {limit} OFFSET {offset}");
        (format!("SELECT {COLUMNS} FROM events WHERE sequence IN ({found}) {order}"), values)
    }
}

/// How SQLite goes about a page, for the test that it does not sort or scan events.
#[cfg(test)]
pub(super) fn plan(connection: &Connection, filter: &EventFilter, page: EventPage) -> Outcome<String> {
    let search = Search::new(filter);
    let (sql, values) = search.page_sql(page, Stretch { first: 0, last: i64::MAX }, 0);
    let lines = all(connection, &format!("EXPLAIN QUERY PLAN {sql}"), params_from_iter(values.0), |row| {
        Ok(row.get::<_, String>(3)?)
    })?;
    Ok(lines.join("\n"))
}
