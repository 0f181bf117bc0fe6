//! Lists the processes of a sandbox by reading its `/proc` with bash only, because an image may lack `ps`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use sandboxd_client::{Client, Code, Sandbox};

use super::named_sandbox::find_sandbox;

/// The time, and one line per process: pid, parent, state, owner, CPU ticks, kB of memory, start in ticks, and command line. The time is
/// the start of the script, because lxcfs counts `/proc/uptime` from the start of the sandbox, and starts of processes count from that of the host.
const SCRIPT: &str = r#"
read -r stat < /proc/$$/stat; set -- ${stat##*) }; printf 'now\t%s\n' "${20}"
for dir in /proc/[0-9]*; do
  pid=${dir#/proc/}; [ "$pid" = "$$" ] && continue
  { read -r stat < "$dir/stat"; } 2>/dev/null || continue
  name=${stat#*(}; name=${name%)*}; set -- ${stat##*) }
  state=$1 parent=$2 ticks=$((${12} + ${13})) start=${20} user= memory=0
  while read -r key value _; do
    case $key in Uid:) user=$value ;; VmRSS:) memory=$value ;; esac
  done 2>/dev/null < "$dir/status"
  words=(); mapfile -d '' -t words 2>/dev/null < "$dir/cmdline"
  line="${words[*]}"; line=${line//[$'\t\r\n']/ }
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$pid" "$parent" "$state" "$user" "$ticks" "$memory" "$start" "${line:-[$name]}"
done"#;
/// The time limit of the script as a detached command.
const TIMEOUT: Duration = Duration::from_secs(60);
/// USER_HZ, which is 100 on all common systems.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process in a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxProcess {
    pub pid: u32,
    pub parent: u32,
    pub state: String,
    pub user: String,
    pub memory_kb: u64,
    /// Total CPU time.
    pub cpu_s: f64,
    /// Time since its start.
    pub age_s: f64,
    pub command: String,
}

/// One snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Time since the start of the host.
    pub at_s: f64,
    pub processes: Vec<SandboxProcess>,
}

/// Takes one snapshot. Fails for a paused sandbox, without resuming it. While commands hold all execution slots, a detached command takes
/// it, because those have slots of their own.
pub async fn take_snapshot(client: &Client, id: &str) -> Result<Snapshot> {
    let sandbox = find_sandbox(&client.without_limit_waits(), id).await?;
    match sandbox.execute(SCRIPT).without_resume().killed_on_drop().await {
        Err(error) if error.code() == Code::RateLimited => {
            take_detached(&client.sandbox(sandbox.id().as_str())?).await
        }
        Err(error) => Err(error.into()),
        Ok(result) => checked(result.exit_code, &result.stdout, &result.stderr),
    }
}

async fn take_detached(sandbox: &Sandbox) -> Result<Snapshot> {
    let command = sandbox.execute(SCRIPT).without_resume().timeout(TIMEOUT).detached().await?;
    let ended = command.wait().await?;
    let mut page = command.output().await?;
    let (mut stdout, mut stderr) = (page.stdout, page.stderr);
    while page.more {
        page = command.output_after(&page.next).await?;
        stdout.push_str(&page.stdout);
        stderr.push_str(&page.stderr);
    }
    checked(ended.exit_code, &stdout, &stderr)
}

fn checked(exit_code: Option<i32>, stdout: &str, stderr: &str) -> Result<Snapshot> {
    match exit_code {
        Some(0) => Ok(read(stdout)),
        _ => bail!("cannot list the processes: {}", stderr.trim()),
    }
}

/// Parses the output of the script. Skips malformed lines, because programs in the sandbox control parts of /proc.
fn read(text: &str) -> Snapshot {
    let now = text.lines().find_map(|line| line.strip_prefix("now\t")?.parse::<f64>().ok()).unwrap_or(0.0);
    let at_s = now / TICKS_PER_SECOND;
    let processes = text.lines().filter_map(|line| process(line, at_s)).collect();
    Snapshot { at_s, processes }
}

fn process(line: &str, at_s: f64) -> Option<SandboxProcess> {
    let mut parts = line.splitn(8, '\t');
    let mut next = || parts.next();
    let (pid, parent) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (state, user) = (next()?.to_owned(), next()?.to_owned());
    let ticks: f64 = next()?.parse().ok()?;
    let memory_kb = next()?.parse().ok()?;
    let start: f64 = next()?.parse().ok()?;
    let command = next()?.to_owned();
    let (cpu_s, age_s) = (ticks / TICKS_PER_SECOND, (at_s - start / TICKS_PER_SECOND).max(0.0));
    Some(SandboxProcess { pid, parent, state, user, memory_kb, cpu_s, age_s, command })
}

/// CPU usage of each process between two snapshots, in percent of one CPU. New processes count from their start.
pub fn shares(before: &Snapshot, after: &Snapshot) -> BTreeMap<u32, f64> {
    let elapsed = (after.at_s - before.at_s).max(0.01);
    let used = |process: &SandboxProcess| {
        let earlier =
            before.processes.iter().find(|old| old.pid == process.pid && old.age_s <= process.age_s);
        (process.cpu_s - earlier.map_or(0.0, |old| old.cpu_s)).max(0.0)
    };
    after.processes.iter().map(|process| (process.pid, used(process) / elapsed * 100.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "now\t10050\n1\t0\tS\t0\t10\t2048\t50\t/init\n7\t1\tR\t0\t250\t512\t9050\tsleep 60\nnonsense\n";

    #[test]
    fn malformed_lines_of_a_sandbox_are_skipped() {
        let snapshot = read(TEXT);
        assert_eq!((snapshot.at_s, snapshot.processes.len()), (100.5, 2));
        let sleep = &snapshot.processes[1];
        assert_eq!(
            (sleep.pid, sleep.parent, sleep.memory_kb, sleep.command.as_str()),
            (7, 1, 512, "sleep 60")
        );
        assert!((sleep.cpu_s - 2.5).abs() < 1e-9 && (sleep.age_s - 10.0).abs() < 1e-9);
        assert_eq!(read("").processes, []);
    }

    #[test]
    fn shares_are_of_the_time_between_snapshots() {
        let before = read(TEXT);
        let mut after = before.clone();
        after.at_s += 2.0;
        after.processes[1].cpu_s += 1.0;
        after.processes.iter_mut().for_each(|process| process.age_s += 2.0);
        let shares = shares(&before, &after);
        assert!((shares[&7] - 50.0).abs() < 1e-9 && shares[&1].abs() < 1e-9, "{shares:?}");
    }
}
