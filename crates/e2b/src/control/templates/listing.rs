//! Templates as their clients list them: one for each name, whose versions are its builds. How often a template is used is not counted.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::Timestamp;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use builder::Template;
use rules::TimeMs;
use serde_json::{Value, json};

use super::super::paging::Page;
use super::super::reference::{self, Reference, build_id};
use super::super::{Call, view};
use super::missing;
use super::status::word;
use crate::ENVD_VERSION;
use crate::error::E2bError;

/// All versions of a template, the newest first.
type Versions = Vec<Arc<Template>>;

/// All templates of the account, the oldest first.
pub async fn list(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let shown: Vec<Value> = all(call).iter().map(|versions| listed(versions)).collect();
    Ok(view::json(StatusCode::OK, &shown))
}

/// A page of templates, the newest first.
pub async fn list_page(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let page = Page::read(call.query.as_deref())?;
    let mut all = all(call);
    all.reverse();
    let shown: Vec<Value> = page.of(&all).iter().map(|versions| listed(versions)).collect();
    let mut response = view::json(StatusCode::OK, &shown);
    page.mark_next(&mut response, shown.len(), all.len() as u64);
    Ok(response)
}

/// A template with a page of its builds, the newest first.
pub async fn get(call: Call, _: Body) -> Result<Response, E2bError> {
    let call = &call;
    let text = &call.text("template");
    let page = Page::read(call.query.as_deref())?;
    let own = call.api.service.builder.list(&call.caller.account);
    let versions = reference::versions(&own, text);
    let mut shown = common(&versions).ok_or_else(|| missing(text))?;
    let builds: Vec<Value> = page.of(&versions).iter().map(|version| build(version)).collect();
    let count = builds.len();
    shown["builds"] = builds.into();
    let mut response = view::json(StatusCode::OK, &shown);
    page.mark_next(&mut response, count, versions.len() as u64);
    Ok(response)
}

/// The templates of an account, in the order of their first builds.
fn all(call: &Call) -> Vec<Versions> {
    let mut of_names: BTreeMap<String, Versions> = BTreeMap::new();
    for version in call.api.service.builder.list(&call.caller.account) {
        of_names.entry(version.name.clone()).or_default().push(version);
    }
    let mut all: Vec<Versions> = of_names.into_values().collect();
    for versions in &mut all {
        versions.sort_by_key(|version| Reverse(version.version));
    }
    all.sort_by_key(|versions| created_at(versions));
    all
}

fn created_at(versions: &[Arc<Template>]) -> TimeMs {
    versions.iter().map(|version| version.created_at).min().unwrap_or_default()
}

fn changed_at(version: &Template) -> TimeMs {
    version.finished_at.unwrap_or(version.created_at)
}

/// The version that the name of a template stands for; if none is ready, the newest one.
fn current(versions: &[Arc<Template>]) -> Option<&Arc<Template>> {
    let newest = versions.first()?;
    match reference::resolve(versions, &newest.name) {
        Reference::Version(found) => versions.iter().find(|version| version.id == found.id),
        Reference::NoTag(_) | Reference::Unknown => Some(newest),
    }
}

/// What each form of a template has. `None` without a version.
fn common(versions: &[Arc<Template>]) -> Option<Value> {
    let current = current(versions)?;
    let names = [&current.name];
    let updated = versions.iter().map(|version| changed_at(version)).max().unwrap_or_default();
    Some(json!({
        "templateID": current.id,
        "public": false,
        "aliases": names,
        "names": names,
        "createdAt": Timestamp::from(created_at(versions)),
        "updatedAt": Timestamp::from(updated),
        "lastSpawnedAt": null,
        "spawnCount": 0,
    }))
}

/// A template in a list.
fn listed(versions: &[Arc<Template>]) -> Value {
    let (Some(mut shown), Some(current)) = (common(versions), current(versions)) else { return Value::Null };
    let resources = current.content.config.resources;
    shown["buildID"] = build_id(&current.id).into();
    shown["buildStatus"] = versions.first().map(|newest| word(newest.state)).into();
    shown["buildCount"] = versions.len().into();
    shown["cpuCount"] = resources.cpu.into();
    shown["memoryMB"] = resources.memory_mb.into();
    shown["diskSizeMB"] = resources.disk_mb.into();
    shown["envdVersion"] = ENVD_VERSION.into();
    shown["createdBy"] = Value::Null;
    shown
}

fn build(version: &Template) -> Value {
    let resources = version.content.config.resources;
    let mut shown = json!({
        "buildID": build_id(&version.id),
        "status": word(version.state),
        "createdAt": Timestamp::from(version.created_at),
        "updatedAt": Timestamp::from(changed_at(version)),
        "cpuCount": resources.cpu,
        "memoryMB": resources.memory_mb,
        "diskSizeMB": resources.disk_mb,
        "envdVersion": ENVD_VERSION,
    });
    if let Some(finished) = version.finished_at {
        shown["finishedAt"] = json!(Timestamp::from(finished));
    }
    shown
}

#[cfg(test)]
mod tests {
    use api::TemplateState;

    use super::*;
    use crate::control::reference::tests::{id, version};

    #[test]
    fn a_template_shows_the_version_that_its_name_stands_for() {
        let versions = [
            version("web", 3, TemplateState::Building, &["default"]),
            version("web", 2, TemplateState::Ready, &["dev"]),
            version("web", 1, TemplateState::Ready, &["default"]),
        ];
        let shown = listed(&versions);
        let first = id("web", 1);
        assert_eq!((&shown["templateID"], &shown["buildID"]), (&json!(first), &json!(build_id(&first))));
        assert_eq!((&shown["buildStatus"], &shown["buildCount"]), (&json!("building"), &json!(3)));
        assert_eq!((&shown["names"], &shown["memoryMB"]), (&json!(["web"]), &json!(1024)));
        assert_eq!(shown["createdAt"], json!(Timestamp::from(TimeMs(1))));
        assert_eq!(shown["updatedAt"], json!(Timestamp::from(TimeMs(1000))));
        let unready = listed(&versions[..1]);
        assert_eq!((&unready["templateID"], &unready["spawnCount"]), (&json!(id("web", 3)), &json!(0)));
        assert_eq!(listed(&[]), Value::Null);
    }

    #[test]
    fn a_build_in_progress_has_no_end() {
        let running = build(&version("web", 3, TemplateState::Building, &[]));
        assert_eq!((&running["status"], running.get("finishedAt")), (&json!("building"), None));
        assert!(build(&version("web", 2, TemplateState::Failed, &[]))["finishedAt"].is_string());
    }
}
