//! `sbx fork`: creates sandboxes with a copy of the disk of another one, and prints their ids.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Sandbox};

use super::command_line::env_variable;
use crate::cli::ForkArguments;
use crate::output::OutputFormat;

/// Prints the ids of the new sandboxes. All are created, or none.
pub async fn fork(client: &Client, format: OutputFormat, arguments: ForkArguments) -> Result<ExitCode> {
    let ForkArguments { id, count, env, name, metadata, memory } = arguments;
    let mut request = client.find(&id).await?.fork(count).memory(memory);
    for word in &env {
        if let Some((name, value)) = env_variable(word)? {
            request = request.env(name, value);
        }
    }
    if let Some(name) = name {
        request = request.name(name);
    }
    for (key, value) in metadata {
        request = request.metadata(key, value);
    }
    let forks = request.await?;
    let known: Vec<_> = forks.iter().map(Sandbox::known).collect();
    format.print(&known, |_| forks.iter().map(|fork| format!("{}\n", fork.id())).collect())
}
