//! Pauses during work, and process loss: the files on the disk persist.

use std::time::Duration;

use api::{ExecuteRequest, SandboxId, SandboxState};
use e2e::{Rig, RigOptions, command, with_rig};
use engine::ExecutionEvent;

use crate::{in_sandbox, small, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_leaves_the_sandbox_paused_with_its_disk() {
    in_sandbox(async |rig, id| {
        let neighbour = small(rig).await;
        rig.output(id, "echo kept > f; sync; sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        let mut running =
            rig.engine.sandbox("test", id).execute(command("echo started; sleep 1000")).await.unwrap();
        assert!(matches!(running.next().await, ExecutionEvent::Stdout(_)));
        let agent = rustix::process::Pid::from_raw(rig.host_pids(id).unwrap()[0]).unwrap();
        rustix::process::kill_process(agent, rustix::process::Signal::KILL).unwrap();
        // Waiting clients get an error, and the sandbox's record has a note.
        assert!(matches!(running.next().await, ExecutionEvent::Failed(_)));
        wait_until("the sandbox is paused", async || {
            rig.engine.sandbox("test", id).status().await.unwrap().state() == SandboxState::Paused
        })
        .await;
        let record = rig.engine.sandbox("test", id).status().await.unwrap().record;
        let note = record.lifecycle.note();
        assert!(note.is_some_and(|note| note.contains("processes ended")), "{note:?}");
        // The next command starts the sandbox again with its files, but without its processes.
        assert_eq!(rig.output(id, "cat f; pgrep -c sleep || true").await.unwrap(), "kept\n0\n");
        assert_eq!(rig.engine.sandbox("test", id).status().await.unwrap().state(), SandboxState::Running);
        rig.output(&neighbour, "true").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_a_command_and_its_timeout() {
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
        // Output that was sent before the pause may still arrive; then nothing does, for longer than the timeout of the command.
        let mut arrived = 0;
        while let Ok(event) = tokio::time::timeout(Duration::from_secs(3), running.next()).await {
            assert!(matches!(event, ExecutionEvent::Stdout(_)), "{event:?}");
            arrived += 1;
            assert!(arrived < 5, "the command continues");
        }
        rig.engine.sandbox("test", id).resume().await.unwrap();
        let result = running.collect(10_000).await.unwrap();
        assert_eq!((result.exit_code, result.stdout.lines().last()), (Some(0), Some("20")), "{result:?}");
        // The timeout counts while the sandbox runs.
        let long = ExecuteRequest { timeout_ms: 600, ..command("sleep 1000") };
        let running = rig.engine.sandbox("test", id).execute(long).await.unwrap();
        rig.engine.sandbox("test", id).pause().await.unwrap();
        rig.engine.sandbox("test", id).resume().await.unwrap();
        assert_eq!(running.collect(1000).await.unwrap().signal.as_deref(), Some("SIGKILL"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_sandbox_can_be_paused() {
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
        wait_until("all commands have ended", async || rig.host_pids(id).unwrap().len() == 1).await;
        // Terminated while paused, it leaves nothing.
        rig.engine.sandbox("test", id).pause().await.unwrap();
        rig.engine.sandbox("test", id).terminate("request").await.unwrap();
        wait_until("its cgroup is gone", async || rig.host_pids(id).is_err()).await;
    })
    .await;
}

/// Puts a pipe in the place of `/etc/passwd` and ends the processes, so that the next command starts the sandbox again.
async fn replace_passwd_by_pipe(rig: &Rig, id: &SandboxId) {
    rig.output(id, "mv /etc/passwd /etc/passwd.kept && mkfifo /etc/passwd && sync").await.unwrap();
    let agent = rustix::process::Pid::from_raw(rig.host_pids(id).unwrap()[0]).unwrap();
    rustix::process::kill_process(agent, rustix::process::Signal::KILL).unwrap();
    wait_until("the sandbox is paused", async || {
        rig.engine.sandbox("test", id).status().await.unwrap().state() == SandboxState::Paused
    })
    .await;
}

/// A sandbox can obstruct its next start by a runtime: that reads `/etc/passwd`, and would block forever on a pipe.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_hangs_times_out() {
    let options = RigOptions { runtime: Some("/usr/sbin/runc".into()), ..RigOptions::default() };
    with_rig(options, async |rig| {
        let id = &small(rig).await;
        replace_passwd_by_pipe(rig, id).await;
        let begun = std::time::Instant::now();
        let refused = rig.engine.sandbox("test", id).execute(command("true")).await;
        assert!(refused.is_err(), "the sandbox started although /etc/passwd is a pipe");
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
        // The failed start leaves nothing, and the sandbox can be terminated.
        assert_eq!(rig.engine.sandbox("test", id).status().await.unwrap().state(), SandboxState::Paused);
        assert!(rig.host_pids(id).unwrap_or_default().is_empty());
        rig.engine.sandbox("test", id).terminate("request").await.unwrap();
    })
    .await;
}

/// The launcher reads no file of the sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_sandbox_do_not_obstruct_its_next_start() {
    if std::env::var_os("SANDBOXD_TEST_RUNTIME").is_some() {
        // Runtimes read /etc/passwd; see the test above.
        return;
    }
    in_sandbox(async |rig, id| {
        replace_passwd_by_pipe(rig, id).await;
        assert_eq!(rig.output(id, "test -p /etc/passwd && echo started").await.unwrap(), "started\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_sandbox_leaves_no_zombies() {
    in_sandbox(async |rig, _| {
        let id = small(rig).await;
        rig.output(&id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        let pids = rig.host_pids(&id).unwrap();
        assert!(pids.len() > 1);
        rig.engine.sandbox("test", &id).terminate("request").await.unwrap();
        for pid in pids {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} still exists");
        }
    })
    .await;
}
