//! `sbx fork`: creates sandboxes with a copy of the disk of another one, and prints their ids.

use std::process::ExitCode;

use anyhow::Result;
use base::SetSome;
use sandboxd_client::{Client, Fork, Sandbox};

use super::named_sandbox::find_sandbox;
use super::variables::variables;
use crate::cli::ForkArguments;
use crate::output::OutputFormat;

/// Prints the ids of the new sandboxes. All are created, or none.
pub async fn fork(client: &Client, format: OutputFormat, arguments: ForkArguments) -> Result<ExitCode> {
    let ForkArguments { id, count, env, name, metadata, memory } = arguments;
    let mut request = find_sandbox(client, &id).await?.fork(count).memory(memory);
    for (name, value) in variables(&[], &env)? {
        request = request.env(name, value);
    }
    request = request.set_some(name, Fork::name);
    for (key, value) in metadata {
        request = request.metadata(key, value);
    }
    let forks = request.await?;
    let known: Vec<_> = forks.iter().map(Sandbox::known).collect();
    format.print(&known, |_| forks.iter().map(|fork| format!("{}\n", fork.id())).collect())
}
