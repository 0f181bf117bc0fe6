//! Converts records to rows and back. A row that this program cannot have written is reported as damage.

use std::collections::BTreeMap;

use api::{PortVisibility, Resources, SandboxConfig, SandboxId, SandboxState};
use rules::{Lifecycle, TimeMs};
use rusqlite::Row;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{SqliteError, SqliteResult};
use crate::{EndedSandbox, Event, ExposedPort, NewEvent, SandboxRecord, SandboxSummary};

/// Every column of a record, in the order of [`record`]. The first twelve are what [`summary`] reads.
pub(super) const COLUMNS: &str = "id, account, state, image, cpu, memory_mb, disk_mb, slot, created_at, started_at, \
    paused_at, terminated_at, revision, image_digest, layers, image_env, config, ports, lifetime_ms, lifecycle";
pub(super) const PLACEHOLDERS: &str =
    "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20";
/// Columns that only earlier versions use, and that have no default: a new row has values without a meaning.
pub(super) const UNUSED_COLUMNS: &str = "ran_ms, phase";
pub(super) const UNUSED_VALUES: &str = "0, 'not_started'";
/// Metadata and reason only of terminated sandboxes: those of others are in memory, and to read them parses a configuration.
pub(super) const SUMMARY_COLUMNS: &str = "id, account, state, image, cpu, memory_mb, disk_mb, slot, created_at, started_at, paused_at, terminated_at, \
    CASE WHEN terminated_at IS NOT NULL THEN config END, CASE WHEN terminated_at IS NOT NULL THEN lifecycle END";

/// The columns of an event before it has a number. The kind is text, because a newer daemon may have appended kinds to
/// the journal that this one does not know.
#[derive(Debug)]
pub(super) struct EventRow {
    pub(super) sandbox: SandboxId,
    pub(super) account: String,
    pub(super) run: String,
    pub(super) at: TimeMs,
    pub(super) kind: String,
    pub(super) data: Value,
    pub(super) once: Option<String>,
}

impl From<NewEvent> for EventRow {
    fn from(event: NewEvent) -> Self {
        let NewEvent { sandbox, account, run, at, kind, data, once } = event;
        Self { sandbox, account, run, at, kind: kind.as_str().to_owned(), data, once }
    }
}

pub(super) fn record(row: &Row<'_>) -> SqliteResult<SandboxRecord> {
    let layers: String = row.get(14)?;
    let image_env: String = row.get(15)?;
    let config: String = row.get(16)?;
    let ports: String = row.get(17)?;
    let lifetime_ms: Option<i64> = row.get(18)?;
    let lifecycle: String = row.get(19)?;
    let config = parse_config(&config)?;
    Ok(SandboxRecord {
        id: id(row)?,
        account: row.get(1)?,
        lifecycle: parse_lifecycle(&lifecycle)?,
        lifetime_ms: lifetime_ms.map_or(Ok(config.timeout_ms), unsigned)?,
        config,
        slot: row.get(7)?,
        image_digest: row.get(13)?,
        layers: texts(&layers)?,
        image_env: texts(&image_env)?,
        created_at: time(row, 8)?,
        revision: unsigned(row.get(12)?)?,
        ports: parse_ports(&ports)?,
    })
}

pub(super) fn summary(row: &Row<'_>) -> SqliteResult<SandboxSummary> {
    Ok(SandboxSummary {
        id: id(row)?,
        state: state(row)?,
        image: row.get(3)?,
        resources: Resources { cpu: row.get(4)?, memory_mb: row.get(5)?, disk_mb: row.get(6)? },
        created_at: time(row, 8)?,
        started_at: nullable_time(row, 9)?,
        paused_at: nullable_time(row, 10)?,
        terminated_at: nullable_time(row, 11)?,
        ended: ended(row)?,
    })
}

fn ended(row: &Row<'_>) -> SqliteResult<Option<EndedSandbox>> {
    let (config, lifecycle): (Option<String>, Option<String>) = (row.get(12)?, row.get(13)?);
    let (Some(config), Some(lifecycle)) = (config, lifecycle) else { return Ok(None) };
    let ended: EndedLifecycle = serde_json::from_str(&lifecycle)
        .map_err(|error| SqliteError::content("lifecycle of a sandbox", error))?;
    let Some(reason) = ended.reason else { return Ok(None) };
    let config: EndedConfig = serde_json::from_str(&config)
        .map_err(|error| SqliteError::content("metadata of a sandbox", error))?;
    Ok(Some(EndedSandbox { metadata: config.metadata, reason }))
}

/// The part of a configuration that lists show. The rest is skipped.
#[derive(Deserialize)]
struct EndedConfig {
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// The part of a lifecycle that lists show.
#[derive(Deserialize)]
struct EndedLifecycle {
    reason: Option<String>,
}

/// From `sequence, sandbox, account, at, kind, data, run`.
pub(super) fn event(row: &Row<'_>) -> SqliteResult<Event> {
    let sandbox: String = row.get(1)?;
    let data: String = row.get(5)?;
    Ok(Event {
        sequence: unsigned(row.get(0)?)?,
        sandbox: sandbox.parse().map_err(|error| SqliteError::content("sandbox of an event", error))?,
        account: row.get(2)?,
        at: time(row, 3)?,
        kind: row.get(4)?,
        run: row.get(6)?,
        data: serde_json::from_str(&data).map_err(|error| SqliteError::content("data of an event", error))?,
    })
}

fn id(row: &Row<'_>) -> SqliteResult<SandboxId> {
    let text: String = row.get(0)?;
    text.parse().map_err(|error| SqliteError::content("id of a sandbox", error))
}

fn state(row: &Row<'_>) -> SqliteResult<SandboxState> {
    let text: String = row.get(2)?;
    let states =
        [SandboxState::Creating, SandboxState::Running, SandboxState::Paused, SandboxState::Terminated];
    let known = states.into_iter().find(|state| state.to_string() == text);
    known.ok_or_else(|| SqliteError::content("state of a sandbox", text))
}

pub(super) fn time(row: &Row<'_>, column: usize) -> SqliteResult<TimeMs> {
    Ok(TimeMs(unsigned(row.get(column)?)?))
}

pub(super) fn nullable_time(row: &Row<'_>, column: usize) -> SqliteResult<Option<TimeMs>> {
    let stored: Option<i64> = row.get(column)?;
    stored.map(|ms| Ok(TimeMs(unsigned(ms)?))).transpose()
}

pub(super) fn optional_time(time: Option<TimeMs>) -> SqliteResult<Option<i64>> {
    time.map(|time| integer(time.0)).transpose()
}

/// Converts a number, which was checked to fit.
pub(super) fn integer(number: u64) -> SqliteResult<i64> {
    i64::try_from(number).map_err(|error| SqliteError::content("a number to be stored", error))
}

pub(super) fn unsigned(number: i64) -> SqliteResult<u64> {
    u64::try_from(number).map_err(|error| SqliteError::content("a stored number", error))
}

pub(super) fn config_text(config: &SandboxConfig) -> SqliteResult<String> {
    serde_json::to_string(config).map_err(|error| SqliteError::content("config to be stored", error))
}

pub(super) fn texts(column: &str) -> SqliteResult<Vec<String>> {
    serde_json::from_str(column).map_err(|error| SqliteError::content("list of texts of a sandbox", error))
}

pub(super) fn texts_column(texts: &[String]) -> SqliteResult<String> {
    serde_json::to_string(texts).map_err(|error| SqliteError::content("list of texts to be stored", error))
}

pub(super) fn lifecycle_text(lifecycle: &Lifecycle) -> SqliteResult<String> {
    serde_json::to_string(lifecycle).map_err(|error| SqliteError::content("lifecycle to be stored", error))
}

fn parse_lifecycle(text: &str) -> SqliteResult<Lifecycle> {
    serde_json::from_str(text).map_err(|error| SqliteError::content("lifecycle of a sandbox", error))
}

pub(super) fn parse_config(text: &str) -> SqliteResult<SandboxConfig> {
    serde_json::from_str(text).map_err(|error| SqliteError::content("config of a sandbox", error))
}

pub(super) fn ports_column(ports: &[ExposedPort]) -> String {
    let row = |port: &ExposedPort| {
        json!([port.port, port.visibility.as_str(), port.auto_resume, port.exposed_at.0, port.seal])
    };
    Value::Array(ports.iter().map(row).collect()).to_string()
}

fn parse_ports(text: &str) -> SqliteResult<Vec<ExposedPort>> {
    let rows: Vec<(u16, PortVisibility, bool, u64, [u8; 16])> =
        serde_json::from_str(text).map_err(|error| SqliteError::content("ports of a sandbox", error))?;
    let port = |(port, visibility, auto_resume, exposed_at, seal)| {
        let exposed_at = TimeMs(exposed_at);
        ExposedPort { port, visibility, auto_resume, exposed_at, seal }
    };
    Ok(rows.into_iter().map(port).collect())
}
