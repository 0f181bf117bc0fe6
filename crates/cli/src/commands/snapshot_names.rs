//! Snapshots by their names, which `create`, `run`, `rollback` and `snapshot rm` accept in place of ids.

use anyhow::{Result, bail};
use sandboxd_client::{Client, Sandbox, Snapshots};

/// The beginning of ids of snapshots.
const ID_PREFIX: &str = "snap_";
/// The most ids that a message lists.
const SHOWN_IDS: u32 = 10;

/// The id of the newest snapshot that a query finds. Several snapshots can have the same name.
pub async fn newest_snapshot(query: &Snapshots) -> sandboxd_client::Result<Option<String>> {
    let page = query.clone().page_size(1).page(0).await?;
    Ok(page.data.first().map(|snapshot| snapshot.id.to_string()))
}

/// The id of a snapshot of a sandbox, given its id or its name. If several have the name, it is that of the newest.
pub async fn snapshot_of(client: &Client, sandbox: &Sandbox, given: &str) -> Result<String> {
    if given.starts_with(ID_PREFIX) {
        return Ok(given.to_owned());
    }
    let found = newest_snapshot(&client.snapshots().of(sandbox.id()).name(given)).await?;
    match found {
        Some(id) => Ok(id),
        None => bail!(
            "the sandbox has no snapshot with the name '{}'; 'sbx snapshot ls --sandbox {}' lists its snapshots",
            given.escape_debug(),
            sandbox.id()
        ),
    }
}

/// The id of the only snapshot with a name, or the id itself. A name that several snapshots have is refused: which of them is meant must not
/// be guessed when it is deleted.
pub async fn only_snapshot(client: &Client, given: &str) -> Result<String> {
    if given.starts_with(ID_PREFIX) {
        return Ok(given.to_owned());
    }
    let found = client.snapshots().name(given).page_size(SHOWN_IDS).page(0).await?;
    let ids: Vec<String> = found.data.iter().map(|snapshot| snapshot.id.to_string()).collect();
    match &ids[..] {
        [id] => Ok(id.clone()),
        [] => bail!("no snapshot has the name '{}'; 'sbx snapshot ls' lists snapshots", given.escape_debug()),
        ids => bail!(
            "{} snapshots have the name '{}'; pass an id: {}",
            found.pagination.total,
            given.escape_debug(),
            ids.join(", ")
        ),
    }
}
