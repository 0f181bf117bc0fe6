//! Pausing in the midst of work, and an agent that dies: what was on the disk is there afterwards.

use std::time::Duration;

use api::{ExecuteRequest, SandboxState};
use e2e::command;
use engine::ExecutionEvent;

use crate::{becomes, in_sandbox, small};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_agent_leaves_a_paused_sandbox_on_its_disk() {
    in_sandbox(async |rig, id| {
        let neighbour = small(rig).await;
        rig.output(id, "echo kept > f; sync; sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        let mut running =
            rig.engine.sandbox("test", id).execute(command("echo started; sleep 1000")).await.unwrap();
        assert!(matches!(running.next().await, ExecutionEvent::Stdout(_)));
        let agent = rustix::process::Pid::from_raw(rig.host_pids(id).unwrap()[0]).unwrap();
        rustix::process::kill_process(agent, rustix::process::Signal::KILL).unwrap();
        // Whoever waits hears of it, and the sandbox says what happened.
        assert!(matches!(running.next().await, ExecutionEvent::Failed(_)));
        becomes("the sandbox is paused", async || {
            rig.engine.sandbox("test", id).status().await.unwrap().state() == SandboxState::Paused
        })
        .await;
        let note = rig.engine.sandbox("test", id).status().await.unwrap().record.note.clone();
        assert!(note.as_deref().is_some_and(|note| note.contains("processes ended")), "{note:?}");
        // The next command starts it again, with its files and without its processes.
        assert_eq!(rig.output(id, "cat f; pgrep -c sleep || true").await.unwrap(), "kept\n0\n");
        assert_eq!(rig.engine.sandbox("test", id).status().await.unwrap().state(), SandboxState::Running);
        rig.output(&neighbour, "true").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_a_command_and_its_time() {
    in_sandbox(async |rig, id| {
        let count = "for i in $(seq 20); do echo $i; sleep 0.05; done";
        let mut running = rig
            .engine
            .sandbox("test", id)
            .execute(ExecuteRequest { timeout_ms: 2500, ..command(count) })
            .await
            .unwrap();
        assert!(matches!(running.next().await, ExecutionEvent::Stdout(_)));
        rig.engine.sandbox("test", id).pause().await.unwrap();
        // What was under way when it stopped may still come; then nothing does, for longer than the command's time.
        let mut came = 0;
        while let Ok(event) = tokio::time::timeout(Duration::from_secs(3), running.next()).await {
            assert!(matches!(event, ExecutionEvent::Stdout(_)), "{event:?}");
            came += 1;
            assert!(came < 5, "it goes on");
        }
        rig.engine.sandbox("test", id).resume().await.unwrap();
        let result = running.collect(10_000).await.unwrap();
        assert_eq!((result.exit_code, result.stdout.lines().last()), (Some(0), Some("20")), "{result:?}");
        // And its time does end it when it runs.
        let long = ExecuteRequest { timeout_ms: 600, ..command("sleep 1000") };
        let running = rig.engine.sandbox("test", id).execute(long).await.unwrap();
        rig.engine.sandbox("test", id).pause().await.unwrap();
        rig.engine.sandbox("test", id).resume().await.unwrap();
        assert_eq!(running.collect(1000).await.unwrap().signal.as_deref(), Some("SIGKILL"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_sandbox_pauses_at_any_moment() {
    in_sandbox(async |rig, id| {
        let mut busy = Vec::new();
        for text in ["exec yes", "while :; do /bin/true; done", "while :; do echo x > f; sync; done"] {
            busy.push(rig.engine.sandbox("test", id).execute(command(text)).await.unwrap());
        }
        for _ in 0..10 {
            rig.engine.sandbox("test", id).pause().await.unwrap();
            assert_eq!(rig.engine.sandbox("test", id).status().await.unwrap().state(), SandboxState::Paused);
            rig.engine.sandbox("test", id).resume().await.unwrap();
        }
        drop(busy);
        becomes("all have ended", async || rig.host_pids(id).unwrap().len() == 1).await;
        // Ended while it is paused, it leaves nothing.
        rig.engine.sandbox("test", id).pause().await.unwrap();
        rig.engine.sandbox("test", id).terminate("request").await.unwrap();
        becomes("its cgroup is gone", async || rig.host_pids(id).is_err()).await;
    })
    .await;
}

/// What the sandbox's root leaves in the way of its next start: the runtime reads `/etc/passwd`, and would read a pipe for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_hangs_on_what_a_tenant_left_is_given_up() {
    in_sandbox(async |rig, id| {
        rig.output(id, "mv /etc/passwd /etc/passwd.kept && mkfifo /etc/passwd && sync").await.unwrap();
        let agent = rustix::process::Pid::from_raw(rig.host_pids(id).unwrap()[0]).unwrap();
        rustix::process::kill_process(agent, rustix::process::Signal::KILL).unwrap();
        becomes("the sandbox is paused", async || {
            rig.engine.sandbox("test", id).status().await.unwrap().state() == SandboxState::Paused
        })
        .await;
        let begun = std::time::Instant::now();
        let refused = rig.engine.sandbox("test", id).execute(command("true")).await;
        assert!(refused.is_err(), "a start that needs a name to be read from a pipe");
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
        // Nothing of the attempt is left, and its owner can still end it.
        assert_eq!(rig.engine.sandbox("test", id).status().await.unwrap().state(), SandboxState::Paused);
        assert!(rig.host_pids(id).unwrap_or_default().is_empty());
        rig.engine.sandbox("test", id).terminate("request").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_sandbox_leaves_the_process_table_at_once() {
    in_sandbox(async |rig, _| {
        let id = small(rig).await;
        rig.output(&id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        let pids = rig.host_pids(&id).unwrap();
        assert!(pids.len() > 1);
        rig.engine.sandbox("test", &id).terminate("request").await.unwrap();
        for pid in pids {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} is still on the table");
        }
    })
    .await;
}
