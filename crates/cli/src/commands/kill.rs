//! `sbx kill`: ends executions of a sandbox, or sends them a signal.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Code};

use super::batch::{BatchForm, ItemResult, for_each};
use super::end::SIGNALS;
use super::named_sandbox::find_sandbox;
use crate::cli::KillArguments;
use crate::output::OutputFormat;

/// Cancels the executions, or sends them the signal, and prints their ids.
pub async fn kill(client: &Client, format: OutputFormat, arguments: &KillArguments) -> Result<ExitCode> {
    let KillArguments { id, executions, signal } = arguments;
    let sandbox = find_sandbox(client, id).await?;
    let signal = signal.as_deref().map(signal_name);
    for_each(executions, BatchForm::of(format, executions.len()), async |execution: &String| {
        let execution = sandbox.execution(execution)?;
        let view = match &signal {
            None => execution.cancel().await?,
            Some(signal) => {
                match execution.signal(signal).await {
                    // As when it is killed: nothing is left to do.
                    Err(error) if error.code() == Code::ExecutionEnded => {}
                    sent => sent?,
                }
                execution.status().await?
            }
        };
        ItemResult::new(execution.id(), view).map(Some)
    })
    .await
}

/// The name of a signal as the service knows it: `SIGTERM` for `term` or `15`.
fn signal_name(text: &str) -> String {
    let named = text.parse::<usize>().ok().and_then(|number| SIGNALS.get(number.checked_sub(1)?));
    let name = named.map_or_else(|| text.to_ascii_uppercase(), |name| (*name).to_owned());
    if name.starts_with("SIG") { name } else { format!("SIG{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_full_names() {
        assert_eq!(
            ["TERM", "int", "SIGHUP", "sigusr1"].map(signal_name),
            ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"]
        );
        // The service refuses numbers that are none.
        assert_eq!(
            ["15", "1", "9", "0", "99"].map(signal_name),
            ["SIGTERM", "SIGHUP", "SIGKILL", "SIG0", "SIG99"]
        );
    }
}
