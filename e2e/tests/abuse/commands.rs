//! Commands that try to escape their end, and sandboxes without working directory or shell.

use std::time::{Duration, Instant};

use api::ExecuteRequest;
use e2e::command;
use engine::{EngineError, ExecutionError};

use crate::{agent_start_time, in_sandbox, run_for, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn kill_all_does_not_kill_the_agent() {
    in_sandbox(async |rig, id| {
        let agent = agent_start_time(rig, id).await;
        rig.output(id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        // kill(-1) spares the caller's shell, which is then killed by its child.
        let result = rig.run(id, "perl -e 'kill 9, -1; kill 9, 1'; perl -e 'kill 9, getppid'").await.unwrap();
        assert_eq!(result.signal.as_deref(), Some("SIGKILL"), "{result:?}");
        assert_eq!(agent_start_time(rig, id).await, agent);
        assert_eq!(rig.host_pids(id).unwrap().len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_kills_the_whole_process_tree_and_nothing_else() {
    in_sandbox(async |rig, id| {
        let bystander = rig.output(id, "sleep 1000 >/dev/null 2>&1 & echo $!").await.unwrap();
        for escape in [
            "setsid sleep 1000 & sleep 60",
            "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; sleep 60",
            "trap '' TERM HUP INT QUIT; sleep 60; sleep 60",
            "exec 1>&- 2>&- 0<&-; sleep 60",
            "setpriv --reuid 1000 --clear-groups setsid sleep 1000 & sleep 60",
            "kill -STOP $$",
        ] {
            let begun = Instant::now();
            let result = run_for(rig, id, escape, 300).await;
            assert_eq!(result.signal.as_deref(), Some("SIGKILL"), "{escape}: {result:?}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{escape}: {:?}", begun.elapsed());
            assert_eq!(rig.host_pids(id).unwrap().len(), 2, "{escape}: a process escaped");
        }
        assert_eq!(rig.output(id, &format!("cat /proc/{}/comm", bystander.trim())).await.unwrap(), "sleep\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_process_does_not_delay_the_response() {
    in_sandbox(async |rig, id| {
        let begun = Instant::now();
        // The background process holds the command's output open and writes to it after the command has ended.
        let result =
            rig.run(id, "(sleep 0.2; echo late; echo alive > f; sleep 1000) & echo early").await.unwrap();
        assert_eq!((result.stdout.as_str(), result.exit_code), ("early\n", Some(0)));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        wait_until("the background process continues", async || {
            rig.run(id, "cat f").await.unwrap().stdout == "alive\n"
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commands_are_limited() {
    in_sandbox(async |rig, id| {
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push(rig.engine.sandbox("test", id).execute(command("sleep 1000")).await.unwrap());
        }
        let refused = rig.engine.sandbox("test", id).execute(command("true")).await.err();
        assert!(matches!(refused, Some(EngineError::Execution(ExecutionError::TooMany(_)))), "{refused:?}");
        // When a client disconnects, its command ends and frees its slot.
        running.pop();
        wait_until("a slot is free", async || rig.run(id, "true").await.is_ok()).await;
        drop(running);
        wait_until("all commands have ended", async || rig.host_pids(id).unwrap().len() == 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_working_directory_or_shell_is_reported() {
    in_sandbox(async |rig, id| {
        rig.output(id, "rm -rf /workspace").await.unwrap();
        let result = rig.run(id, "true").await.unwrap();
        assert!(
            result.exit_code.is_none()
                && result.stderr.contains("the working directory /workspace does not exist"),
            "{result:?}"
        );
        let elsewhere = |text| ExecuteRequest { cwd: Some("/".to_owned()), ..command(text) };
        let run = async |text| {
            rig.engine
                .sandbox("test", id)
                .execute(elsewhere(text))
                .await
                .unwrap()
                .collect(10_000)
                .await
                .unwrap()
        };
        assert_eq!(run("ln -s /nowhere /workspace").await.exit_code, Some(0));
        assert!(rig.run(id, "true").await.unwrap().stderr.contains("does not exist"));
        assert_eq!(
            run("rm /workspace; mkdir /workspace; rm -f /bin/bash /usr/bin/bash").await.exit_code,
            Some(0)
        );
        let result = run("true").await;
        assert!(result.exit_code.is_none() && result.stderr.contains("bash"), "{result:?}");
        // Pause, resume and termination still work.
        rig.engine.sandbox("test", id).pause().await.unwrap();
        rig.engine.sandbox("test", id).resume().await.unwrap();
        rig.engine.sandbox("test", id).terminate("request").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_shell_is_reported() {
    for replace in [
        "echo nonsense > /opt/x; mv /opt/x /bin/bash",
        "chmod 0 /bin/bash",
        "rm -f /bin/bash; mkdir /bin/bash",
    ] {
        in_sandbox(async |rig, id| {
            rig.output(id, replace).await.unwrap();
            let result = rig.run(id, "true").await.unwrap();
            assert!(result.exit_code.is_none() && result.stderr.contains("bash"), "{replace}: {result:?}");
        })
        .await;
    }
}
