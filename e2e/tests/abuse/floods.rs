//! Output without end, in one line, in tiny pieces, and without a reader. The memory of the daemon stays bounded.

use std::time::{Duration, Instant};

use e2e::command;
use engine::ExecutionEvent;

use crate::{in_sandbox, wait_until};

/// The resident memory of this process with all its tests.
fn resident_mb() -> u64 {
    e2e::process::resident_kb(std::process::id()).unwrap() / 1024
}

/// Memory that concurrent tests may use.
const SLACK_MB: u64 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn output_of_a_gigabyte_in_one_line_is_truncated() {
    in_sandbox(async |rig, id| {
        let before = resident_mb();
        let line = rig
            .engine
            .sandbox("test", id)
            .execute(command("head -c 1G /dev/zero | tr '\\0' x"))
            .await
            .unwrap();
        let result = line.collect(1 << 20).await.unwrap();
        assert!(result.exit_code == Some(0) && result.stdout_truncated && !result.stderr_truncated);
        assert!(result.stdout.len() < (1 << 20) + 200, "{}", result.stdout.len());
        assert!(
            result.stdout.contains(&format!("[... {} bytes are missing here ...]", (1 << 30) - (1 << 20)))
        );
        assert!(resident_mb() < before + SLACK_MB, "{} MB, before {before} MB", resident_mb());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_blocks_when_its_reader_stops() {
    in_sandbox(async |rig, id| {
        let before = resident_mb();
        let mut flood = rig.engine.sandbox("test", id).execute(command("yes >&2 & exec yes")).await.unwrap();
        assert!(matches!(flood.next().await, ExecutionEvent::Stdout(_) | ExecutionEvent::Stderr(_)));
        // Nobody reads. Other commands on the same link are not affected.
        let begun = Instant::now();
        for _ in 0..20 {
            rig.output(id, "head -c 300000 /dev/zero | tr '\\0' x").await.unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        // The command is blocked at its pipe and uses no CPU time.
        let spent = || rig.host_pids(id).unwrap().into_iter().map(processor_time).sum::<u64>();
        wait_until("the command is blocked", async || {
            let earlier = spent();
            tokio::time::sleep(Duration::from_millis(50)).await;
            spent() == earlier
        })
        .await;
        assert!(resident_mb() < before + SLACK_MB, "{} MB, before {before} MB", resident_mb());
        // It continues when it is read again, and ends with all its processes when it is dropped.
        let mut seen = 0;
        while seen < 2_000_000 {
            match flood.next().await {
                ExecutionEvent::Stdout(bytes) | ExecutionEvent::Stderr(bytes) => seen += bytes.len(),
                other => panic!("{other:?}"),
            }
        }
        drop(flood);
        wait_until("the command has ended", async || rig.host_pids(id).unwrap().len() == 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_applies_without_a_reader() {
    in_sandbox(async |rig, id| {
        let short = api::ExecuteRequest { timeout_ms: 700, ..command("exec yes") };
        let mut flood = rig.engine.sandbox("test", id).execute(short).await.unwrap();
        assert!(matches!(flood.next().await, ExecutionEvent::Stdout(_)));
        // From here on nobody reads.
        wait_until("the command has ended", async || rig.host_pids(id).unwrap().len() == 1).await;
        // A late reader gets the buffered output and the signal.
        let result = flood.collect(1 << 20).await.unwrap();
        assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")), "{result:?}");
    })
    .await;
}

/// The CPU time of a process in ticks; 0 if it has ended.
fn processor_time(pid: i32) -> u64 {
    e2e::process::processor_ticks(pid).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tiny_writes_all_arrive() {
    in_sandbox(async |rig, id| {
        let script =
            "exec perl -e 'syswrite($_ % 2 ? STDOUT : STDERR, sprintf(qq(%06d\\n), $_)) for 1..100000'";
        let result = rig.run(id, script).await.unwrap();
        let numbers = |text: &str| text.lines().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>();
        assert!(numbers(&result.stdout).into_iter().eq((1..=100_000).step_by(2)));
        assert!(numbers(&result.stderr).into_iter().eq((2..=100_000).step_by(2)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_megabytes_pass_through_stdin_and_stdout() {
    in_sandbox(async |rig, id| {
        let text: String = (0..1_250_000).map(|number| format!("{number:07}\n")).collect();
        let request = api::ExecuteRequest { stdin: Some(text.clone()), ..command("cat") };
        let result =
            rig.engine.sandbox("test", id).execute(request).await.unwrap().collect(20 << 20).await.unwrap();
        assert!(
            result.stdout == text && !result.stdout_truncated,
            "{} of {} bytes",
            result.stdout.len(),
            text.len()
        );
        // A command may ignore its input.
        assert_eq!(rig.run_with_stdin(id, "exec 0<&-; echo done", &text).await.unwrap().stdout, "done\n");
        assert_eq!(rig.run_with_stdin(id, "head -c 8", &text).await.unwrap().stdout, "0000000\n");
    })
    .await;
}
