//! Commands that do not end as they should, and a sandbox that takes away what they stand on.

use std::time::{Duration, Instant};

use api::ExecuteRequest;
use e2e::command;
use engine::EngineError;

use crate::{becomes, in_sandbox, run_for, serves};

#[tokio::test(flavor = "multi_thread")]
async fn killing_everybody_kills_no_agent() {
    in_sandbox(async |rig, id| {
        let agent = serves(rig, id).await;
        rig.output(id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        // The shell spares itself and is killed by its child.
        let result = rig.run(id, "perl -e 'kill 9, -1; kill 9, 1'; perl -e 'kill 9, getppid'").await.unwrap();
        assert_eq!(result.signal.as_deref(), Some("SIGKILL"), "{result:?}");
        assert_eq!(serves(rig, id).await, agent);
        assert_eq!(rig.host_pids(id).unwrap().len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_is_over_ends_the_whole_tree_and_nobody_else() {
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
            assert_eq!(rig.host_pids(id).unwrap().len(), 2, "{escape}: somebody got away");
        }
        assert_eq!(rig.output(id, &format!("cat /proc/{}/comm", bystander.trim())).await.unwrap(), "sleep\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_on_holds_no_answer() {
    in_sandbox(async |rig, id| {
        let begun = Instant::now();
        // It keeps the command's own output open, and writes to it when nobody listens any more.
        let result =
            rig.run(id, "(sleep 0.2; echo late; echo alive > f; sleep 1000) & echo early").await.unwrap();
        assert_eq!((result.stdout.as_str(), result.exit_code), ("early\n", Some(0)));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        becomes("the one in the background goes on", async || {
            rig.run(id, "cat f").await.unwrap().stdout == "alive\n"
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_run_at_once() {
    in_sandbox(async |rig, id| {
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push(rig.engine.sandbox("test", id).execute(command("sleep 1000")).await.unwrap());
        }
        let refused = rig.engine.sandbox("test", id).execute(command("true")).await.err();
        assert!(matches!(refused, Some(EngineError::TooManyExecutions(_))), "{refused:?}");
        // A caller that goes away makes room, and takes its command along.
        running.pop();
        becomes("there is room again", async || rig.run(id, "true").await.is_ok()).await;
        drop(running);
        becomes("all are gone", async || rig.host_pids(id).unwrap().len() == 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_stands_on_may_be_gone() {
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
        // It pauses, resumes and ends like any other.
        rig.engine.sandbox("test", id).pause().await.unwrap();
        rig.engine.sandbox("test", id).resume().await.unwrap();
        rig.engine.sandbox("test", id).terminate("request").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_run_is_said() {
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
