//! `sbx top`: shows the processes in a sandbox by CPU usage until Ctrl-C. It runs a command in the sandbox, which therefore does not become
//! idle.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use sandboxd_client::Client;
use serde_json::{Value, json};

use super::probe::{Snapshot, shares, take_snapshot};
use super::ps::memory;
use super::stats;
use crate::cli::{StatsArguments, TopArguments};
use crate::interrupt::Interrupt;
use crate::output::{CLEAR, OutputFormat};
use crate::style::{Paint, Tone};
use crate::table::{plain, table};

const ROWS: usize = 30;
const EVERY: Duration = Duration::from_secs(2);

/// Prints the processes of one sandbox, or the usage of several ones, at each refresh until a signal.
pub async fn top(client: &Client, format: OutputFormat, arguments: &TopArguments) -> Result<ExitCode> {
    let [id] = arguments.ids.as_slice() else {
        let (ids, refreshes) = (arguments.ids.clone(), arguments.refreshes);
        let every = arguments.every.unwrap_or(stats::EVERY);
        return stats::stats(client, format, &StatsArguments { ids, no_stream: false, every, refreshes })
            .await;
    };
    let interrupt = Interrupt::listen()?;
    let every = arguments.every.unwrap_or(EVERY);
    let terminal = std::io::stdout().is_terminal();
    let mut refreshes = arguments.refreshes.or((!terminal).then_some(1));
    let mut before = take_snapshot(client, id).await?;
    while refreshes != Some(0) {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = interrupt.first() => return Ok(ExitCode::SUCCESS),
        }
        let after = take_snapshot(client, id).await?;
        let clear = if terminal { CLEAR } else { "" };
        format
            .print(&json_of(&before, &after), |paint| format!("{clear}{}", render(&before, &after, paint)))?;
        before = after;
        refreshes = refreshes.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

fn json_of(before: &Snapshot, after: &Snapshot) -> Value {
    let shares = shares(before, after);
    let all = after.processes.iter();
    all.map(|process| {
        let (pid, command, memory_kb) = (process.pid, &process.command, process.memory_kb);
        json!({"pid": pid, "cpuPercent": shares.get(&pid), "memoryKb": memory_kb, "command": command})
    })
    .collect()
}

fn render(before: &Snapshot, after: &Snapshot, paint: Paint) -> String {
    let shares = shares(before, after);
    let share = |pid: u32| shares.get(&pid).copied().unwrap_or_default();
    let mut processes: Vec<_> = after.processes.iter().collect();
    processes.sort_by(|a, b| share(b.pid).total_cmp(&share(a.pid)).then(b.memory_kb.cmp(&a.memory_kb)));
    let rows = processes.into_iter().take(ROWS).map(|process| {
        [
            plain(process.pid.to_string()),
            plain(&process.user),
            plain(format!("{:.1} %", share(process.pid))),
            plain(memory(process.memory_kb)),
            (process.command.clone(), Tone::Bold),
        ]
    });
    table(["PID", "USER", "CPU", "MEMORY", "COMMAND"], rows, paint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::probe::SandboxProcess;

    fn process(pid: u32, cpu_s: f64, memory_kb: u64) -> SandboxProcess {
        let (state, user, command) = ("R".to_owned(), "0".to_owned(), format!("job{pid}"));
        SandboxProcess { pid, parent: 1, state, user, memory_kb, cpu_s, age_s: 100.0, command }
    }

    fn snapshot(at_s: f64, processes: Vec<SandboxProcess>) -> Snapshot {
        Snapshot { at_s, processes }
    }

    #[test]
    fn the_busiest_processes_come_first_and_then_the_largest() {
        let before = snapshot(10.0, vec![process(1, 0.0, 9), process(2, 0.0, 5), process(3, 0.0, 7)]);
        let after = snapshot(12.0, vec![process(1, 0.0, 5), process(2, 1.0, 5), process(3, 0.0, 7)]);
        let text = render(&before, &after, Paint::None);
        let pids: Vec<&str> = text.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(pids, ["2", "3", "1"]);
        assert!(text.lines().nth(1).unwrap().contains("50.0 %"), "{text}");
    }

    #[test]
    fn a_screen_has_thirty_rows_and_the_json_all_processes() {
        let many: Vec<_> = (1..=40).map(|pid| process(pid, 0.0, 1)).collect();
        let (before, after) = (snapshot(10.0, many.clone()), snapshot(12.0, many));
        assert_eq!(render(&before, &after, Paint::None).lines().count(), 1 + ROWS);
        let json = json_of(&before, &after);
        assert_eq!(json.as_array().map(Vec::len), Some(40));
        assert_eq!(json[0], json!({ "pid": 1, "cpuPercent": 0.0, "memoryKb": 1, "command": "job1" }));
    }
}
