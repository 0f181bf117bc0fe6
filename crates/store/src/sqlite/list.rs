//! Lists: a page of summaries and the exact total, from one snapshot.
//!
//! Without a metadata filter the total is the sum of a few stored rows, and the page is a scan along an index in the
//! order of the list. With one, the scan is along the shorter of two: the sandboxes with the rarest pair, or those of
//! the state and image; the other conditions are checked for each. The total is then counted, so its cost grows with
//! the length of the scan.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::error::SqliteResult;
use super::read::all;
use super::rows;
use crate::{Filter, Listing, MAX_PAGE, PageRange, SandboxSummary};

/// Limit of the count of a pair's sandboxes for this comparison.
const PROBE_LIMIT: u64 = 10_000;

pub(super) fn list(connection: &mut Connection, filter: &Filter, page: PageRange) -> SqliteResult<Listing> {
    let snapshot = connection.transaction()?;
    let known_total = stored_total(&snapshot, filter)?;
    if filter.metadata.is_empty() {
        let items = items(&snapshot, &along_sandboxes(filter), page)?;
        return Ok(Listing { items, total: known_total });
    }
    let query = cheapest_query(&snapshot, filter, known_total)?;
    let total = count(&snapshot, &query)?;
    let items = if total > page.offset { items(&snapshot, &query, page)? } else { Vec::new() };
    Ok(Listing { items, total })
}

/// The part of a statement after SELECT; it has the columns `row` and `created_at`.
struct Query {
    from: String,
    values: Vec<Value>,
}

impl Query {
    fn value(&mut self, value: &str) -> String {
        self.values.push(Value::Text(value.to_owned()));
        format!("?{}", self.values.len())
    }

    fn and(&mut self, condition: &str) {
        self.from += " AND ";
        self.from += condition;
    }
}

/// The number of sandboxes of the state and image, with any metadata.
fn stored_total(connection: &Connection, filter: &Filter) -> SqliteResult<u64> {
    let sql = "SELECT coalesce(sum(count), 0) FROM totals
               WHERE account = ?1 AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR image = ?3)";
    let state = filter.state.map(|state| state.to_string());
    let mut statement = connection.prepare_cached(sql)?;
    rows::unsigned(statement.query_row((&filter.account, state, &filter.image), |row| row.get(0))?)
}

fn along_sandboxes(filter: &Filter) -> Query {
    let index = match (filter.state, &filter.image) {
        (None, None) => "sandboxes_newest",
        (Some(_), None) => "sandboxes_by_state",
        (None, Some(_)) => "sandboxes_by_image",
        (Some(_), Some(_)) => "sandboxes_by_state_and_image",
    };
    let mut query = Query { from: String::new(), values: Vec::new() };
    let account = query.value(&filter.account);
    query.from = format!("FROM sandboxes AS base INDEXED BY {index} WHERE base.account = {account}");
    add_state_and_image(&mut query, filter, "base");
    query
}

fn add_state_and_image(query: &mut Query, filter: &Filter, table: &str) {
    if let Some(state) = filter.state {
        let state = query.value(&state.to_string());
        query.and(&format!("{table}.state = {state}"));
    }
    if let Some(image) = &filter.image {
        let image = query.value(image);
        query.and(&format!("{table}.image = {image}"));
    }
}

fn cheapest_query(connection: &Connection, filter: &Filter, known_total: u64) -> SqliteResult<Query> {
    let mut pairs = Vec::new();
    for pair in &filter.metadata {
        pairs.push((probe(connection, &filter.account, pair)?, pair));
    }
    pairs.sort_by_key(|(count, _)| *count);
    let rarest = pairs[0].0;
    let narrowed = filter.state.is_some() || filter.image.is_some();
    let mut query = if narrowed && known_total < rarest {
        along_sandboxes(filter)
    } else {
        along_metadata(filter, pairs.remove(0).1)
    };
    for (_, (key, value)) in pairs {
        let (account, key, value) = (query.value(&filter.account), query.value(key), query.value(value));
        query.and(&format!(
            "EXISTS (SELECT 1 FROM metadata AS pair WHERE pair.account = {account} AND pair.key = {key} \
             AND pair.value = {value} AND pair.created_at = base.created_at AND pair.row = base.row)"
        ));
    }
    Ok(query)
}

fn along_metadata(filter: &Filter, (key, value): (&String, &String)) -> Query {
    let mut query = Query { from: String::new(), values: Vec::new() };
    let (account, key, value) = (query.value(&filter.account), query.value(key), query.value(value));
    query.from = format!(
        "FROM metadata AS base WHERE base.account = {account} AND base.key = {key} AND base.value = {value}"
    );
    if filter.state.is_some() || filter.image.is_some() {
        query.and("EXISTS (SELECT 1 FROM sandboxes AS own WHERE own.row = base.row");
        add_state_and_image(&mut query, filter, "own");
        query.from += ")";
    }
    query
}

fn probe(connection: &Connection, account: &str, (key, value): (&String, &String)) -> SqliteResult<u64> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM metadata WHERE account = ?1 AND key = ?2 AND value = ?3 LIMIT ?4)",
    )?;
    rows::unsigned(statement.query_row((account, key, value, rows::integer(PROBE_LIMIT)?), |row| row.get(0))?)
}

fn count(connection: &Connection, query: &Query) -> SqliteResult<u64> {
    let mut statement = connection.prepare_cached(&format!("SELECT count(*) {}", query.from))?;
    rows::unsigned(statement.query_row(params_from_iter(&query.values), |row| row.get(0))?)
}

fn items(connection: &Connection, query: &Query, page: PageRange) -> SqliteResult<Vec<SandboxSummary>> {
    let Ok(offset) = i64::try_from(page.offset) else { return Ok(Vec::new()) };
    let (sql, values) = page_sql(query, page.limit, offset);
    all(connection, &sql, params_from_iter(values), rows::summary)
}

/// The scan reads only the index; only the rows of the page are read.
fn page_sql(query: &Query, limit: u32, offset: i64) -> (String, Vec<Value>) {
    let mut values = query.values.clone();
    values.push(Value::Integer(limit.min(MAX_PAGE).into()));
    values.push(Value::Integer(offset));
    let sql = format!(
        "SELECT {} FROM sandboxes WHERE row IN \
         (SELECT base.row {} ORDER BY base.created_at DESC, base.row DESC LIMIT ?{} OFFSET ?{}) \
         ORDER BY created_at DESC, row DESC",
        rows::SUMMARY_COLUMNS,
        query.from,
        values.len() - 1,
        values.len(),
    );
    (sql, values)
}

/// SQLite's query plan for a page, for the test that it does not sort or scan.
#[cfg(test)]
pub(super) fn plan(connection: &Connection, filter: &Filter) -> SqliteResult<String> {
    let query = if filter.metadata.is_empty() {
        along_sandboxes(filter)
    } else {
        cheapest_query(connection, filter, 0)?
    };
    let (sql, values) = page_sql(&query, 20, 0);
    let lines = all(connection, &format!("EXPLAIN QUERY PLAN {sql}"), params_from_iter(values), |row| {
        Ok(row.get::<_, String>(3)?)
    })?;
    Ok(lines.join("\n"))
}
