//! `sbx fork`: creates sandboxes with a copy of the disk of another one, and prints their ids.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Sandbox};

use super::command_line::env_variable;
use crate::cli::ForkArguments;
use crate::output;

pub async fn fork(client: &Client, json: bool, arguments: ForkArguments) -> Result<ExitCode> {
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
    if json {
        output::json(&forks.iter().map(Sandbox::known).collect::<Vec<_>>())?;
    } else {
        output::text(&forks.iter().map(|fork| format!("{}\n", fork.id())).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}
