//! `sbx ps`: lists the processes in a sandbox.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;
use serde_json::json;

use super::probe::{SandboxProcess, take_snapshot};
use crate::cli::ProbeArguments;
use crate::output::OutputFormat;
use crate::style::Tone;
use crate::table::{age, plain, table};

/// Prints the processes as a table.
pub async fn ps(client: &Client, format: OutputFormat, arguments: &ProbeArguments) -> Result<ExitCode> {
    let snapshot = take_snapshot(client, &arguments.id).await?;
    let all: Vec<_> = snapshot.processes.iter().map(as_json).collect();
    format.print(&all, |paint| {
        let rows = snapshot.processes.iter().map(row);
        table(["PID", "PARENT", "USER", "STATE", "MEMORY", "AGE", "COMMAND"], rows, paint)
    })
}

fn as_json(process: &SandboxProcess) -> serde_json::Value {
    json!({
        "pid": process.pid,
        "parent": process.parent,
        "user": process.user,
        "state": process.state,
        "memoryKb": process.memory_kb,
        "cpuSeconds": process.cpu_s,
        "ageSeconds": process.age_s,
        "command": process.command,
    })
}

fn row(process: &SandboxProcess) -> [(String, Tone); 7] {
    [
        plain(process.pid.to_string()),
        plain(process.parent.to_string()),
        plain(&process.user),
        plain(&process.state),
        plain(memory(process.memory_kb)),
        // `age_s` is not negative; fractions of a millisecond are dropped.
        plain(age((process.age_s * 1000.0) as u64)),
        (process.command.clone(), Tone::Bold),
    ]
}

/// An amount of memory for a table.
pub fn memory(kb: u64) -> String {
    if kb < 10_240 { format!("{kb} kB") } else { format!("{} MB", kb / 1024) }
}
