//! Lists of events: a page in the order of the sequences, and the exact total, from one snapshot.
//!
//! A page is a scan along an index of the run, the sandbox or the account; with a filter by kinds, one scan per kind,
//! merged. Totals are sums of stored totals per hour, so a filter by time counts the events of at most two hours. The
//! stored totals also have the range of sequences of their hours. Only filters with both a run and a sandbox count
//! all their events.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::error::SqliteResult;
use super::read::all;
use super::rows;
use crate::{Event, EventFilter, EventListing, EventOrder, EventPage, MAX_PAGE};

/// As in the schema's triggers.
const HOUR_MS: i64 = 3_600_000;
const COLUMNS: &str = "sequence, sandbox, account, at, kind, data, run";

pub(super) fn list(
    connection: &mut Connection,
    filter: &EventFilter,
    page: EventPage,
) -> SqliteResult<EventListing> {
    let snapshot = connection.transaction()?;
    let search = Search::new(filter);
    if !search.belongs_to_account(&snapshot)? {
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
) -> SqliteResult<(Vec<Event>, u64)> {
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

pub(super) fn last(connection: &Connection) -> SqliteResult<u64> {
    let mut statement = connection.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?;
    let last: Option<i64> = statement.query_row([], |row| row.get(0)).optional()?;
    rows::unsigned(last.unwrap_or(0))
}

/// The parameters of one statement.
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

/// A range of sequences, both ends included.
#[derive(Clone, Copy)]
struct SequenceRange {
    first: i64,
    last: i64,
}

/// A range of time: from `since` on, before `until`.
#[derive(Clone, Copy)]
struct TimeRange {
    since: i64,
    until: i64,
}

struct Search<'a> {
    filter: &'a EventFilter,
    time_range: Option<TimeRange>,
}

impl<'a> Search<'a> {
    fn new(filter: &'a EventFilter) -> Self {
        // All stored times are in this range.
        let bound =
            |at: Option<rules::TimeMs>, none| at.map_or(none, |at| i64::try_from(at.0).unwrap_or(i64::MAX));
        let time_range = TimeRange { since: bound(filter.since, 0), until: bound(filter.until, i64::MAX) };
        let timed = filter.since.is_some() || filter.until.is_some();
        Self { filter, time_range: timed.then_some(time_range) }
    }

    /// Whether the sandbox's events belong to the account, which its totals do not contain. All of them have the same
    /// account.
    fn belongs_to_account(&self, connection: &Connection) -> SqliteResult<bool> {
        let Some(sandbox) = &self.filter.sandbox else { return Ok(true) };
        let sql = "SELECT account FROM events INDEXED BY events_of_a_sandbox WHERE sandbox = ?1 LIMIT 1";
        let mut statement = connection.prepare_cached(sql)?;
        let account: Option<String> = statement.query_row([sandbox.as_str()], |row| row.get(0)).optional()?;
        Ok(account.is_some_and(|account| account == self.filter.account))
    }

    /// The scope of the stored totals that cover the filter, if there is one.
    fn scope(&self) -> Option<String> {
        let EventFilter { account, sandbox, run, .. } = self.filter;
        match (run, sandbox) {
            (Some(_), Some(_)) => None,
            (Some(run), None) => Some(format!("r{run} {account}")),
            (None, Some(sandbox)) => Some(format!("s{sandbox}")),
            (None, None) => Some(format!("a{account}")),
        }
    }

    /// The scans that cover the filter: one per kind if the index contains kinds.
    fn kinds(&self) -> Vec<Option<&'a str>> {
        if self.filter.run.is_some() || self.filter.kinds.is_empty() {
            return vec![None];
        }
        self.filter.kinds.iter().map(|kind| Some(kind.as_str())).collect()
    }

    /// `FROM ... WHERE ...` of one scan.
    fn walk(
        &self,
        kind: Option<&str>,
        values: &mut Values,
        sequence_range: Option<SequenceRange>,
        time_range: Option<TimeRange>,
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
            // Required to use the partial index.
            sql += &format!(" AND run = {} AND run <> ''", values.text(run));
            if !kinds.is_empty() {
                let places: Vec<String> = kinds.iter().map(|kind| values.text(kind.as_str())).collect();
                sql += &format!(" AND kind IN ({})", places.join(", "));
            }
        }
        if let Some(sandbox) = sandbox {
            sql += &format!(" AND sandbox = {}", values.text(sandbox.as_str()));
        }
        if let Some(kind) = kind {
            sql += &format!(" AND kind = {}", values.text(kind));
        }
        if let Some(SequenceRange { first, last }) = sequence_range {
            sql += &format!(" AND sequence BETWEEN {} AND {}", values.number(first), values.number(last));
        }
        if let Some(TimeRange { since, until }) = time_range {
            sql += &format!(" AND at >= {} AND at < {}", values.number(since), values.number(until));
        }
        sql
    }

    fn total(&self, connection: &Connection) -> SqliteResult<u64> {
        let Some(scope) = self.scope() else { return self.count(connection, None, self.time_range) };
        let Some(TimeRange { since, until }) = self.time_range else {
            return self.hour_totals(connection, &scope, 0, i64::MAX);
        };
        if since >= until {
            return Ok(0);
        }
        let (first, end) = (since.div_euclid(HOUR_MS) + i64::from(since % HOUR_MS != 0), until / HOUR_MS);
        if first > end {
            return self.count_part_of_hour(connection, &scope, TimeRange { since, until });
        }
        let before = self.count_part_of_hour(
            connection,
            &scope,
            TimeRange { since, until: first.saturating_mul(HOUR_MS) },
        )?;
        let behind =
            self.count_part_of_hour(connection, &scope, TimeRange { since: end * HOUR_MS, until })?;
        Ok(before + self.hour_totals(connection, &scope, first, end)? + behind)
    }

    /// The sum of the totals of whole hours, from `first` on, before `end`.
    fn hour_totals(&self, connection: &Connection, scope: &str, first: i64, end: i64) -> SqliteResult<u64> {
        let (from, values) = self.hours(scope, first, end);
        let sql = format!("SELECT coalesce(sum(count), 0) {from}");
        let mut statement = connection.prepare_cached(&sql)?;
        rows::unsigned(statement.query_row(params_from_iter(values.0), |row| row.get(0))?)
    }

    fn hours(&self, scope: &str, first: i64, end: i64) -> (String, Values) {
        let mut values = Values::default();
        let mut from = format!("FROM event_totals WHERE scope = {}", values.text(scope));
        if !self.filter.kinds.is_empty() {
            let places: Vec<String> =
                self.filter.kinds.iter().map(|kind| values.text(kind.as_str())).collect();
            from += &format!(" AND kind IN ({})", places.join(", "));
        }
        from += &format!(" AND hour >= {} AND hour < {}", values.number(first), values.number(end));
        (from, values)
    }

    /// Counts the events of a part of an hour, in the range of sequences of the hour.
    fn count_part_of_hour(
        &self,
        connection: &Connection,
        scope: &str,
        time_range: TimeRange,
    ) -> SqliteResult<u64> {
        if time_range.since >= time_range.until {
            return Ok(0);
        }
        let hour = time_range.since / HOUR_MS;
        let Some(sequence_range) = self.sequence_range(connection, scope, hour, hour.saturating_add(1))?
        else {
            return Ok(0);
        };
        self.count(connection, Some(sequence_range), Some(time_range))
    }

    /// The range of sequences of these hours; `None` without events.
    fn sequence_range(
        &self,
        connection: &Connection,
        scope: &str,
        first: i64,
        end: i64,
    ) -> SqliteResult<Option<SequenceRange>> {
        let (from, values) = self.hours(scope, first, end);
        let mut statement = connection.prepare_cached(&format!("SELECT min(first), max(last) {from}"))?;
        let found: (Option<i64>, Option<i64>) =
            statement.query_row(params_from_iter(values.0), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(found.0.zip(found.1).map(|(first, last)| SequenceRange { first, last }))
    }

    fn count(
        &self,
        connection: &Connection,
        sequence_range: Option<SequenceRange>,
        time_range: Option<TimeRange>,
    ) -> SqliteResult<u64> {
        let mut count = 0;
        for kind in self.kinds() {
            let mut values = Values::default();
            let sql = format!("SELECT count(*) {}", self.walk(kind, &mut values, sequence_range, time_range));
            let mut statement = connection.prepare_cached(&sql)?;
            count += rows::unsigned(statement.query_row(params_from_iter(values.0), |row| row.get(0))?)?;
        }
        Ok(count)
    }

    /// The events of the page, and one more if it exists.
    fn items(&self, connection: &Connection, page: EventPage) -> SqliteResult<Vec<Event>> {
        let Some(sequence_range) = self.bounds(connection, page)? else { return Ok(Vec::new()) };
        let Ok(offset) = i64::try_from(page.offset) else { return Ok(Vec::new()) };
        let (sql, values) = self.page_sql(page, sequence_range, offset);
        all(connection, &sql, params_from_iter(values.0), rows::event)
    }

    /// The range of sequences from the bounds of the page and the time range.
    fn bounds(&self, connection: &Connection, page: EventPage) -> SqliteResult<Option<SequenceRange>> {
        let number = |number: Option<u64>, none| {
            number.map_or(none, |number| i64::try_from(number).unwrap_or(i64::MAX))
        };
        let first = number(page.after, -1).saturating_add(1);
        let mut sequence_range =
            SequenceRange { first, last: number(page.before, i64::MAX) - i64::from(page.before.is_some()) };
        if let (Some(time_range), Some(scope)) = (self.time_range, self.scope()) {
            let (first, end) = (time_range.since / HOUR_MS, (time_range.until / HOUR_MS).saturating_add(1));
            let Some(hours) = self.sequence_range(connection, &scope, first, end)? else { return Ok(None) };
            sequence_range.first = sequence_range.first.max(hours.first);
            sequence_range.last = sequence_range.last.min(hours.last);
        }
        Ok((sequence_range.first <= sequence_range.last).then_some(sequence_range))
    }

    /// Each scan is limited to the size of the page; only the rows of the page are read.
    fn page_sql(&self, page: EventPage, sequence_range: SequenceRange, offset: i64) -> (String, Values) {
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
                let walk = self.walk(kind, &mut values, Some(sequence_range), self.time_range);
                format!("SELECT sequence FROM (SELECT sequence {walk} {order} LIMIT {offset} + {limit})")
            })
            .collect();
        let walks = walks.join(" UNION ALL ");
        let found = format!("{walks} {order} LIMIT {limit} OFFSET {offset}");
        (format!("SELECT {COLUMNS} FROM events WHERE sequence IN ({found}) {order}"), values)
    }
}

/// SQLite's query plan for a page, for the test that it does not sort or scan events.
#[cfg(test)]
pub(super) fn plan(connection: &Connection, filter: &EventFilter, page: EventPage) -> SqliteResult<String> {
    let search = Search::new(filter);
    let (sql, values) = search.page_sql(page, SequenceRange { first: 0, last: i64::MAX }, 0);
    let lines = all(connection, &format!("EXPLAIN QUERY PLAN {sql}"), params_from_iter(values.0), |row| {
        Ok(row.get::<_, String>(3)?)
    })?;
    Ok(lines.join("\n"))
}
