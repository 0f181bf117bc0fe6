//! The sandbox that a word of the command line names, by its id or its name. Called by all commands with a `SANDBOX`.
//!
//! A name is free when its sandbox has ended. Until another one has it, it still stands for that one here, so that errors say when and why
//! it ended, and its events can be listed.

use sandboxd_client::{Client, Code, NAME_KEY, Result, Sandbox, SandboxState};

/// The sandbox with an id or a name: the live one, or the newest terminated one. Sends no request for an id, and a second one only for a name
/// that no live sandbox has.
pub async fn find_sandbox(client: &Client, id_or_name: &str) -> Result<Sandbox> {
    let error = match client.find(id_or_name).await {
        Err(error) if error.code() == Code::SandboxNotFound => error,
        found => return found,
    };
    let ended = client.list().state(SandboxState::Terminated).metadata(NAME_KEY, id_or_name).page_size(1);
    match ended.page(0).await.map(|page| page.data.into_iter().next()) {
        Ok(Some(item)) => client.sandbox(item.id.as_str()),
        // If they cannot be listed, the error of the name counts.
        Ok(None) | Err(_) => Err(error),
    }
}
