//! Bytes: endless, in one line, in tiny pieces, and read by nobody. Memory here stays bounded whatever comes.

use std::time::{Duration, Instant};

use e2e::command;
use engine::ExecutionEvent;

use crate::{becomes, in_sandbox};

/// Of this process, with all its tests.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// What tests beside this one may take meanwhile.
const SLACK_MB: u64 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_a_gigabyte_is_cut() {
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
async fn a_reader_that_stops_stops_its_command() {
    in_sandbox(async |rig, id| {
        let before = resident_mb();
        let mut flood = rig.engine.sandbox("test", id).execute(command("yes >&2 & exec yes")).await.unwrap();
        assert!(matches!(flood.next().await, ExecutionEvent::Stdout(_) | ExecutionEvent::Stderr(_)));
        // Nobody reads; others on the same link do not feel it.
        let begun = Instant::now();
        for _ in 0..20 {
            rig.output(id, "head -c 300000 /dev/zero | tr '\\0' x").await.unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        // Stopped at its pipe: it takes no processor time any more.
        let spent = || rig.host_pids(id).unwrap().into_iter().map(processor_time).sum::<u64>();
        becomes("the flood stands", async || {
            let earlier = spent();
            tokio::time::sleep(Duration::from_millis(50)).await;
            spent() == earlier
        })
        .await;
        assert!(resident_mb() < before + SLACK_MB, "{} MB, before {before} MB", resident_mb());
        // Read again, it goes on; dropped, it ends with all its processes.
        let mut seen = 0;
        while seen < 2_000_000 {
            match flood.next().await {
                ExecutionEvent::Stdout(bytes) | ExecutionEvent::Stderr(bytes) => seen += bytes.len(),
                other => panic!("{other:?}"),
            }
        }
        drop(flood);
        becomes("the flood is dead", async || rig.host_pids(id).unwrap().len() == 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_is_over_also_when_nobody_reads() {
    in_sandbox(async |rig, id| {
        let short = api::ExecuteRequest { timeout_ms: 700, ..command("exec yes") };
        let mut flood = rig.engine.sandbox("test", id).execute(short).await.unwrap();
        assert!(matches!(flood.next().await, ExecutionEvent::Stdout(_)));
        // From here on nobody asks for anything.
        becomes("the flood is dead", async || rig.host_pids(id).unwrap().len() == 1).await;
        // Who reads at last gets what was under way, and hears that it was killed.
        let result = flood.collect(1 << 20).await.unwrap();
        assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")), "{result:?}");
    })
    .await;
}

/// In the kernel's ticks, of a process that is there.
fn processor_time(pid: i32) -> u64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
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
async fn ten_megabytes_go_in_and_come_out() {
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
        // One that reads none of it is within its rights.
        assert_eq!(rig.feed(id, "exec 0<&-; echo done", &text).await.unwrap().stdout, "done\n");
        assert_eq!(rig.feed(id, "head -c 8", &text).await.unwrap().stdout, "0000000\n");
    })
    .await;
}
