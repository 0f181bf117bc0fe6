//! Snapshots by their names, which requests accept in place of ids. Several snapshots can have the same name.

use std::collections::BTreeMap;

use admission::error::ApiError;
use api::{SandboxId, SnapshotId};
use rules::SnapshotQuery;

use crate::Service;
use crate::error::{SHOWN_IDS, ambiguous_name, no_snapshot};

/// Those with a name, newest first, and how many there are.
fn all_named(
    service: &Service,
    account: &str,
    sandbox: Option<&SandboxId>,
    name: &str,
) -> (Vec<SnapshotId>, u64) {
    let query = SnapshotQuery {
        sandbox: sandbox.cloned(),
        name: Some(name.to_owned()),
        metadata: BTreeMap::new(),
        limit: SHOWN_IDS,
        offset: 0,
    };
    let (found, total) = service.engine.list_snapshots(account, &query);
    (found.iter().map(|snapshot| snapshot.id.clone()).collect(), total)
}

/// The newest one with a name.
fn newest_named(service: &Service, account: &str, name: &str) -> Option<SnapshotId> {
    all_named(service, account, None, name).0.into_iter().next()
}

/// The newest snapshot with a name, which creates and the `FROM` of a Dockerfile accept as an image. A name hides no image of the
/// operator, nor one of this host.
pub fn image_named(service: &Service, account: &str, name: &str) -> Option<SnapshotId> {
    if service.images.is_in_catalogue(name) || service.images.get(name).is_some() {
        return None;
    }
    newest_named(service, account, name)
}

/// The snapshot with an id, or the newest one with a name. If a sandbox is given, its snapshots are searched for the name.
pub fn find(
    service: &Service,
    account: &str,
    sandbox: Option<&SandboxId>,
    text: &str,
) -> Result<SnapshotId, ApiError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let (found, _) = all_named(service, account, sandbox, text);
    found.into_iter().next().ok_or_else(|| no_snapshot(text))
}

/// The snapshot with an id, or the only one with a name: which of several is to be deleted must not be guessed.
pub fn find_only(service: &Service, account: &str, text: &str) -> Result<SnapshotId, ApiError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let (found, total) = all_named(service, account, None, text);
    match &found[..] {
        [] => Err(no_snapshot(text)),
        [id] => Ok(id.clone()),
        ids => {
            let ids: Vec<&str> = ids.iter().map(SnapshotId::as_str).collect();
            Err(ambiguous_name("snapshots", text, total, &ids))
        }
    }
}
