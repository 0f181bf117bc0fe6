//! `sbx __complete`: prints candidates for the last word, one per line with a tab and a description. Errors are not
//! printed, because a shell calls it while the user types.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use sandboxd_client::SandboxState;

use crate::cli::{Cli, Global};
use crate::completion::{Candidates, candidates};
use crate::{context, output};

const MAX_CANDIDATES: u32 = 100;

/// Prints the candidates for the last word. If the service does not answer soon, no sandbox is among them.
pub async fn complete(global: &Global, words: &[String]) -> Result<ExitCode> {
    let mut root = Cli::command();
    root.build();
    let found = match candidates(&root, words) {
        Candidates::Words(words) => words,
        Candidates::Nothing => Vec::new(),
        Candidates::Sandboxes { command, given } => {
            let typed = words.last().map(String::as_str).unwrap_or_default();
            let mut live = live(global, &command).await.unwrap_or_default();
            live.retain(|(id, _)| id.starts_with(typed) && !given.contains(id));
            if command == "cp" {
                live.iter_mut().for_each(|(id, _)| id.push(':'));
            }
            live
        }
    };
    let line =
        |(word, about): (String, String)| format!("{word}\t{}\n", about.lines().next().unwrap_or_default());
    output::text(&found.into_iter().map(line).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// The sandboxes in states that a command accepts.
async fn live(global: &Global, command: &str) -> Result<Vec<(String, String)>> {
    let states: &[SandboxState] = match command {
        "resume" => &[SandboxState::Paused],
        "pause" | "ps" | "stats" | "top" => &[SandboxState::Running],
        _ => &[SandboxState::Running, SandboxState::Paused],
    };
    let client = context::quick_client(global)?;
    let mut found = Vec::new();
    for state in states {
        let page = client.list().details().state(*state).page_size(MAX_CANDIDATES).page(0).await?;
        for item in page.data {
            let about = format!("{}, {}", item.image, item.state);
            found.extend(item.name.map(|name| (name, about.clone())));
            found.push((item.id.to_string(), about));
        }
    }
    Ok(found)
}
