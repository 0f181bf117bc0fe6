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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_unit_that_keeps_the_number_short() {
        let shown = [0, 10_239, 10_240, 1_048_576].map(memory);
        assert_eq!(shown, ["0 kB", "10239 kB", "10 MB", "1024 MB"]);
    }

    #[test]
    fn a_process_is_a_row_for_people_and_an_object_with_units_in_its_names() {
        let process = SandboxProcess {
            pid: 7,
            parent: 1,
            state: "S".to_owned(),
            user: "1000".to_owned(),
            memory_kb: 20_480,
            cpu_s: 1.5,
            age_s: 90.9,
            command: "sleep 60".to_owned(),
        };
        let cells = row(&process).map(|(text, _)| text);
        assert_eq!(cells, ["7", "1", "1000", "S", "20 MB", "1m", "sleep 60"]);
        let object = json!({
            "pid": 7, "parent": 1, "user": "1000", "state": "S", "memoryKb": 20_480, "cpuSeconds": 1.5,
            "ageSeconds": 90.9, "command": "sleep 60",
        });
        assert_eq!(as_json(&process), object);
    }
}
