//! `sbx snapshot`: takes, lists and deletes snapshots.

use std::process::ExitCode;

use anyhow::Result;
use base::SetSome;
use sandboxd_client::{Client, SnapshotView, Snapshots, TakeSnapshot};

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;
use super::snapshot_names::only_snapshot;
use crate::cli::SnapshotCommand;
use crate::output::OutputFormat;
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{age, plain, table};

/// Prints the ids of what it took or deleted, or a table.
pub async fn snapshot(client: &Client, format: OutputFormat, command: SnapshotCommand) -> Result<ExitCode> {
    match command {
        SnapshotCommand::Create { id, name, metadata, memory } => {
            let mut request = find_sandbox(client, &id).await?.snapshot().memory(memory);
            request = request.set_some(name, TakeSnapshot::name);
            for (key, value) in metadata {
                request = request.metadata(key, value);
            }
            let taken = request.await?;
            format.print_id(&taken, &taken.id)
        }
        SnapshotCommand::Ls { sandbox, name, metadata, quiet } => {
            let found = list(client, sandbox.as_deref(), name, metadata).await?;
            if quiet {
                return format.print_ids(&found, |snapshot| snapshot.id.to_string());
            }
            format.print(&found, |paint| render(&found, base::unix_ms(), paint))
        }
        SnapshotCommand::Rm { ids } => {
            for_each(&ids, BatchForm::of(format, ids.len()), async |id: &String| {
                let id = only_snapshot(client, id).await?;
                let deleted = client.delete_snapshot(&id).await?;
                ItemResult::new(id, deleted).map(Some)
            })
            .await
        }
    }
}

async fn list(
    client: &Client,
    sandbox: Option<&str>,
    name: Option<String>,
    metadata: Vec<(String, String)>,
) -> Result<Vec<SnapshotView>> {
    let mut query = client.snapshots();
    if let Some(sandbox) = sandbox {
        query = query.of(find_sandbox(client, sandbox).await?.id());
    }
    query = query.set_some(name, Snapshots::name);
    for (key, value) in metadata {
        query = query.metadata(key, value);
    }
    Ok(query.all().await?)
}

fn render(snapshots: &[SnapshotView], now_ms: u64, paint: Paint) -> String {
    let rows = snapshots.iter().map(|snapshot| {
        [
            (snapshot.id.to_string(), Tone::Bold),
            plain(snapshot.name.as_deref().unwrap_or("-")),
            plain(&snapshot.image),
            plain(size(snapshot.size_bytes)),
            plain(age(now_ms.saturating_sub(snapshot.created_at.0))),
            plain(snapshot.storage.to_string()),
            plain(snapshot.sandbox_id.to_string()),
        ]
    });
    table(["ID", "NAME", "IMAGE", "SIZE", "AGE", "STORAGE", "SANDBOX"], rows, paint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_name_and_size() {
        let json = r#"[{"id":"snap_abcdefgh","sandboxId":"sb_abcdefgh","name":"after-setup","image":"ubuntu:24.04",
            "isolation":"container","memory":false,"sizeBytes":5000000,"state":"ready",
            "createdAt":"1970-01-01T00:01:00Z","metadata":{}}]"#;
        let snapshots: Vec<SnapshotView> = serde_json::from_str(json).unwrap();
        assert_eq!(
            render(&snapshots, 180_000, Paint::None),
            "ID             NAME         IMAGE         SIZE    AGE  STORAGE  SANDBOX\n\
             snap_abcdefgh  after-setup  ubuntu:24.04  5.0 MB  2m   local    sb_abcdefgh\n"
        );
    }
}
