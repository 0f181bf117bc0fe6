//! Resource usage of a sandbox in the form that their clients read.

use api::{SandboxId, Timestamp};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use rules::{SampleQuery, TimeMs};
use serde_json::{Map, Value, json};
use store::SandboxRecord;

use super::{Call, query, route, view};
use crate::error::E2bError;

const MB: u64 = 1 << 20;
/// Most sandboxes that one request can ask for.
const MAX_SANDBOXES: usize = 100;

/// The samples of a sandbox, oldest first.
pub async fn metrics(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    call.find(id)?;
    let wanted = range(call.query.as_deref())?;
    let read = call.sandbox(id).resource_samples(wanted).await;
    let (status, samples) = read.map_err(|error| call.failed(id, error))?;
    let metrics: Vec<Value> = samples.iter().map(|sample| metric(sample, &status.record)).collect();
    Ok(view::json(StatusCode::OK, &metrics))
}

/// The newest sample of each of some sandboxes, by the ids of the sandboxes. Those without one are left out.
pub async fn latest(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let mut found = Map::new();
    for id in wanted(call.query.as_deref())? {
        if call.find(&id).is_err() {
            continue;
        }
        // It fails for a sandbox that was just terminated.
        let Ok((status, samples)) = call.sandbox(&id).resource_samples(SampleQuery::default()).await else {
            continue;
        };
        if let Some(newest) = samples.last() {
            found.insert(id.compact(), metric(newest, &status.record));
        }
    }
    Ok(view::json(StatusCode::OK, &json!({ "sandboxes": found })))
}

/// The sandboxes that a query names, with commas between them.
fn wanted(text: Option<&str>) -> Result<Vec<SandboxId>, E2bError> {
    let pairs = query::pairs(text);
    let given = pairs.get("sandbox_ids").map(String::as_str).unwrap_or_default();
    let ids: Vec<&str> = given.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
    if ids.is_empty() || ids.len() > MAX_SANDBOXES {
        let message = format!("sandbox_ids has {} ids; allowed: 1 to {MAX_SANDBOXES}", ids.len());
        return Err(E2bError::invalid(message));
    }
    let invalid =
        |id: &str| E2bError::invalid(format!("sandbox_ids has {}, which is no id", rules::quoted(id)));
    ids.into_iter().map(|id| route::parse_id(id).map_err(|_| invalid(id))).collect()
}

fn metric(sample: &engine::ResourceSample, record: &SandboxRecord) -> Value {
    let resources = record.config.resources;
    json!({
        "timestamp": Timestamp::from(sample.at),
        "timestampUnix": sample.at.0 / 1000,
        "cpuCount": resources.cpu,
        "cpuUsedPct": sample.cpu_percent / f64::from(resources.cpu.max(1)),
        "memUsed": sample.memory_used,
        "memTotal": u64::from(resources.memory_mb) * MB,
        "memCache": sample.memory_cache,
        "diskUsed": sample.disk_used,
        "diskTotal": u64::from(resources.disk_mb) * MB,
    })
}

/// The range of `start` and `end`, which are in seconds. The second of `end` belongs to the range.
fn range(text: Option<&str>) -> Result<SampleQuery, E2bError> {
    let pairs = query::pairs(text);
    let seconds = |name: &str| {
        let given = pairs.get(name).filter(|value| !value.is_empty());
        given.map(|value| {
            value.parse::<u64>().map_err(|_| {
                E2bError::invalid(format!(
                    "{name} is {}; allowed: a Unix time in seconds",
                    rules::quoted(value)
                ))
            })
        })
    };
    Ok(SampleQuery {
        start: seconds("start").transpose()?.map(|it| TimeMs(it.saturating_mul(1000))),
        end: seconds("end").transpose()?.map(|it| TimeMs(it.saturating_mul(1000).saturating_add(999))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_are_named_with_commas() {
        let count =
            |text: &str| wanted(Some(text)).map(|ids| ids.len()).map_err(|error| error.status.as_u16());
        assert_eq!(count("sandbox_ids=sbabcdefgh23%2Csb_abcdefgh24,"), Ok(2));
        let many = format!("sandbox_ids={}", ["sbabcdefgh23"; MAX_SANDBOXES + 1].join(","));
        for wrong in ["", "sandbox_ids=", "sandbox_ids=,", "sandbox_ids=x", many.as_str()] {
            assert_eq!(count(wrong), Err(400), "{wrong}");
        }
    }

    #[test]
    fn the_range_is_in_seconds_and_includes_the_last_one() {
        let read = range(Some("start=10&end=11")).unwrap();
        assert_eq!((read.start, read.end), (Some(TimeMs(10_000)), Some(TimeMs(11_999))));
        let open = range(Some("start=")).unwrap();
        assert_eq!((open.start, open.end), (None, None));
        assert!(range(Some("start=yesterday")).is_err());
        assert_eq!(range(Some(&format!("end={}", u64::MAX))).unwrap().end, Some(TimeMs(u64::MAX)));
    }
}
