//! The lifecycle of real sandboxes: states, commands, deadlines, execution slots, capacity and the warm pool.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api::{ExecuteRequest, Resources, SandboxConfig, SandboxId, SandboxState};
use e2e::{Expected, PATIENCE, Rig, RigOptions, command, config, wait_for_resources, wait_until, with_rig};
use engine::{CapacityError, EngineError, ExecutionError, SandboxError};
use rules::Capacity;

async fn execute(rig: &Rig, id: &SandboxId, request: ExecuteRequest) -> api::ExecutionResult {
    rig.engine.sandbox("test", id).execute(request).await.unwrap().collect(1 << 20).await.unwrap()
}

async fn create_with(rig: &Rig, config: SandboxConfig) -> Result<SandboxId, EngineError> {
    Ok(rig.engine.create("test", config, rig.template.clone(), None).await?.record.id.clone())
}

/// Waits until a sandbox is in a state. Reading the state is not activity of the sandbox.
async fn wait_for_state(rig: &Rig, id: &SandboxId, wanted: SandboxState) {
    wait_until(&format!("{id} becomes {wanted}"), async || rig.state(id).await.unwrap() == wanted).await;
}

/// Waits until a sandbox is terminated; returns the reason.
async fn wait_for_termination(rig: &Rig, id: &SandboxId) -> String {
    let begin = Instant::now();
    loop {
        match rig.engine.sandbox("test", id).status().await {
            Err(EngineError::Sandbox(SandboxError::NotFound { terminated: Some((_, reason)) })) => {
                return reason;
            }
            Ok(_) => assert!(begin.elapsed() < PATIENCE, "{id} is not terminated"),
            Err(error) => panic!("{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_survives_a_restart_and_leaves_nothing_when_terminated() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let id = rig.create().await.unwrap();
    rig.output(&id, "echo hi > file; sleep 4320 >/dev/null 2>&1 &").await.unwrap();
    let paused = rig.engine.sandbox("test", &id).pause().await.unwrap();
    let resumed = rig.engine.sandbox("test", &id).resume().await.unwrap();
    assert!(resumed.resumed_at >= paused.paused_at);
    let rig = rig.restart().await.unwrap();
    assert_eq!(rig.recovered.running, 1);
    assert_eq!(rig.output(&id, "cat file; pgrep -xc sleep").await.unwrap(), "hi\n1\n");
    let kinds = |events: Vec<store::Event>| events.into_iter().map(|event| event.kind).collect::<Vec<_>>();
    let ended = rig.engine.sandbox("test", &id).terminate("request").await.unwrap();
    assert!(ended.total_runtime_ms >= paused.runtime_duration_ms);
    let events = kinds(rig.lifecycle_events(&id).await.unwrap());
    let expected =
        ["created", "started", "paused", "resumed", "terminated"].map(|kind| format!("sandbox.{kind}"));
    assert_eq!(events, expected);
    assert_eq!(wait_for_resources(rig.layout(), &Expected::default()).await, Vec::<String>::new());
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_its_environment_directory_and_input() {
    with_rig(RigOptions::default(), async |rig| {
        let env = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let sandbox = SandboxConfig { env: env(&[("WHO", "sandbox"), ("ONLY", "here")]), ..config() };
        let id = create_with(rig, sandbox).await.unwrap();
        let print = "echo $IMAGE_SAYS $WHO $ONLY $HOME; pwd";
        assert_eq!(rig.output(&id, print).await.unwrap(), "hello sandbox here /root\n/workspace\n");
        let request = ExecuteRequest {
            env: env(&[("WHO", "command"), ("IMAGE_SAYS", "less")]),
            cwd: Some("/tmp".to_owned()),
            ..command(print)
        };
        assert_eq!(execute(rig, &id, request).await.stdout, "less command here /root\n/tmp\n");
        // Applies to its own command only.
        assert_eq!(rig.output(&id, "echo $WHO").await.unwrap(), "sandbox\n");

        let text = "line\n".repeat(400_000);
        let counted = rig.run_with_stdin(&id, "wc -c; cat | wc -c", &text).await.unwrap();
        assert_eq!(counted.stdout, format!("{}\n0\n", text.len()));
        assert_eq!(rig.run_with_stdin(&id, "head -n 1", &text).await.unwrap().stdout, "line\n");
        assert_eq!(rig.output(&id, "cat; echo end").await.unwrap(), "end\n");

        let missing =
            execute(rig, &id, ExecuteRequest { cwd: Some("/not/there".to_owned()), ..command("true") }).await;
        assert_eq!((missing.exit_code, missing.signal), (None, None));
        assert!(missing.stderr.contains("/not/there"), "{:?}", missing.stderr);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_signals_are_reported() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        let outcome = async |text: &str| {
            let result = rig.run(&id, text).await.unwrap();
            (result.exit_code, result.signal)
        };
        assert_eq!(outcome("exit 0").await, (Some(0), None));
        assert_eq!(outcome("exit 42").await, (Some(42), None));
        assert_eq!(outcome("nonsense-nowhere").await, (Some(127), None));
        assert_eq!(outcome("kill -9 $$").await, (None, Some("SIGKILL".to_owned())));
        assert_eq!(outcome("kill -15 $$").await, (None, Some("SIGTERM".to_owned())));
        assert_eq!(outcome("bash -c 'kill -9 $$'; exit $?").await, (Some(137), None));
        assert_eq!(outcome("bash -c 'kill -15 $$'; exit $?").await, (Some(143), None));

        // A background process does not delay the response and continues to run.
        let begin = Instant::now();
        assert_eq!(rig.output(&id, "sleep 4319 & echo started").await.unwrap(), "started\n");
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!(rig.output(&id, "pgrep -xc sleep").await.unwrap(), "1\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_kills_all_processes_of_a_command() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        rig.output(&id, "sleep 4318 >/dev/null 2>&1 &").await.unwrap();
        let text =
            "echo partial; setsid sleep 4317 & (setsid bash -c 'sleep 4317 & sleep 4317' &); sleep 4317";
        let begin = Instant::now();
        let result = execute(rig, &id, ExecuteRequest { timeout_ms: 400, ..command(text) }).await;
        assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")));
        assert_eq!(result.stdout, "partial\n");
        assert!((400..5000).contains(&result.duration_ms), "{}", result.duration_ms);
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!(rig.run(&id, "pgrep -f 'sleep 431[7]'").await.unwrap().exit_code, Some(1));
        // Processes of other commands continue to run.
        assert_eq!(rig.output(&id, "pgrep -fc 'sleep 431[8]'").await.unwrap(), "1\n");
        // A command ends when its client disconnects.
        let execution =
            rig.engine.sandbox("test", &id).execute(command("touch begun; sleep 4316")).await.unwrap();
        while rig.output(&id, "ls").await.unwrap() != "begun\n" {}
        drop(execution);
        while rig.run(&id, "pgrep -f 'sleep 431[6]'").await.unwrap().exit_code == Some(0) {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_truncated_at_the_cap_and_converted_to_text() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        let collect = async |text: &str, most| {
            rig.engine.sandbox("test", &id).execute(command(text)).await.unwrap().collect(most).await.unwrap()
        };
        let result =
            collect("echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo last; echo short >&2", 1000)
                .await;
        assert!(result.stdout_truncated && !result.stderr_truncated);
        assert!(result.stdout.starts_with("first\nxxx") && result.stdout.ends_with("xxlast\n"));
        assert!(result.stdout.len() < 1200, "{}", result.stdout.len());
        assert_eq!(result.stderr, "short\n");
        let result = collect("printf 'a\\xffb\\xc3\\xa9'", 1000).await;
        assert_eq!(result.stdout, "a\u{fffd}b\u{e9}");
        assert!(!result.stdout_truncated);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_commands_run_concurrently_and_the_next_is_refused_or_queued() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(rig.engine.sandbox("test", &id).execute(command("sleep 4315")).await.unwrap());
        }
        let Err(refused) = rig.engine.sandbox("test", &id).execute(command("true")).await else {
            panic!("a fourth command runs")
        };
        assert!(matches!(refused, EngineError::Execution(ExecutionError::TooMany(_))), "{refused:?}");
        drop(held);
        // The slots are freed when the executions are dropped.
        while rig.engine.sandbox("test", &id).execute(command("true")).await.is_err() {}
    })
    .await;
    let queueing = RigOptions { concurrent_executions: 1, execution_queue: 1, ..RigOptions::default() };
    with_rig(queueing, async |rig| {
        let id = rig.create().await.unwrap();
        let begin = Instant::now();
        let (first, second, third) =
            tokio::join!(rig.run(&id, "sleep 0.3"), rig.run(&id, "sleep 0.3"), rig.run(&id, "sleep 0.3"));
        let ended = [first.is_ok(), second.is_ok(), third.is_ok()].iter().filter(|ok| **ok).count();
        assert_eq!(ended, 2);
        assert!(begin.elapsed() >= Duration::from_millis(600), "they ran concurrently");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_sandbox_does_not_run_and_a_command_resumes_it() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        rig.output(&id, "(while :; do echo tick >> ticks; sleep 0.01; done) >/dev/null 2>&1 &")
            .await
            .unwrap();
        rig.engine.sandbox("test", &id).pause().await.unwrap();
        let cpu = || -> Vec<String> {
            let pids = rig.host_pids(&id).unwrap();
            pids.iter()
                .map(|pid| std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap())
                .collect()
        };
        let before = cpu();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(cpu(), before, "something ran in a paused sandbox");

        let refused = rig.engine.sandbox("test", &id).pause().await.unwrap_err();
        assert!(
            matches!(
                refused,
                EngineError::Sandbox(SandboxError::Refused(rules::OperationRefusal::InvalidState { .. }))
            ),
            "{refused:?}"
        );
        let asleep = ExecuteRequest { auto_resume: false, ..command("true") };
        let Err(refused) = rig.engine.sandbox("test", &id).execute(asleep).await else {
            panic!("it was resumed")
        };
        assert!(
            matches!(
                refused,
                EngineError::Sandbox(SandboxError::Refused(rules::OperationRefusal::InvalidState { .. }))
            ),
            "{refused:?}"
        );
        assert_eq!(rig.state(&id).await.unwrap(), SandboxState::Paused);

        let ticks: u64 = rig.output(&id, "wc -l < ticks").await.unwrap().trim().parse().unwrap();
        assert_eq!(rig.state(&id).await.unwrap(), SandboxState::Running);
        while rig.output(&id, "wc -l < ticks").await.unwrap().trim().parse::<u64>().unwrap() <= ticks {}
        let refused = rig.engine.sandbox("test", &id).resume().await.unwrap_err();
        assert!(
            matches!(
                refused,
                EngineError::Sandbox(SandboxError::Refused(rules::OperationRefusal::InvalidState { .. }))
            ),
            "{refused:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sandbox_is_paused_and_a_busy_one_is_not() {
    with_rig(RigOptions::default(), async |rig| {
        let id = create_with(rig, SandboxConfig { idle_timeout_ms: 300, ..config() }).await.unwrap();
        wait_for_state(rig, &id, SandboxState::Paused).await;
        let watched = rig.run(&id, "sleep 0.9").await.unwrap();
        assert_eq!(watched.exit_code, Some(0));
        let events = rig.lifecycle_events(&id).await.unwrap();
        assert_eq!(
            events.iter().filter(|event| event.kind == "sandbox.paused").count(),
            1,
            "paused while a command ran"
        );
        rig.output(&id, "sleep 4314 >/dev/null 2>&1 &").await.unwrap();
        wait_for_state(rig, &id, SandboxState::Paused).await;
        assert_eq!(rig.lifecycle_events(&id).await.unwrap().pop().unwrap().data["reason"], "idle");
        assert_eq!(rig.output(&id, "pgrep -xc sleep").await.unwrap(), "1\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_the_lifetime_and_its_end_kills_commands() {
    with_rig(RigOptions::default(), async |rig| {
        let id = create_with(rig, SandboxConfig { timeout_ms: 1500, ..config() }).await.unwrap();
        rig.engine.sandbox("test", &id).pause().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2000)).await;
        assert_eq!(rig.state(&id).await.unwrap(), SandboxState::Paused);
        let result = rig.run(&id, "echo said; sleep 4313").await.unwrap();
        assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")));
        assert_eq!(result.stdout, "said\n");
        assert_eq!(wait_for_termination(rig, &id).await, "timeout");
        let last = rig.lifecycle_events(&id).await.unwrap().pop().unwrap();
        let ran = last.data["totalRuntimeMs"].as_u64().unwrap();
        assert!((1500..3000).contains(&ran), "{ran}");
        assert_eq!(wait_for_resources(rig.layout(), &Expected::default()).await, Vec::<String>::new());
    })
    .await;
    with_rig(RigOptions { paused_retention_ms: 300, ..RigOptions::default() }, async |rig| {
        let id = rig.create().await.unwrap();
        rig.engine.sandbox("test", &id).pause().await.unwrap();
        assert_eq!(wait_for_termination(rig, &id).await, "expired");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_timeout_survives_a_restart_and_pauses() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let pausing = SandboxConfig { on_timeout: api::OnTimeout::Pause, auto_resume: false, ..config() };
    let id = create_with(&rig, pausing).await.unwrap();
    rig.output(&id, "sleep 4314 >/dev/null 2>&1 &").await.unwrap();
    let changed =
        rig.engine.sandbox("test", &id).change_timeout(engine::TimeoutChange::Set(3000)).await.unwrap();
    let rig = rig.restart().await.unwrap();
    let status = rig.engine.sandbox("test", &id).status().await.unwrap();
    assert_eq!(status.record.lifetime_ms, changed.record.lifetime_ms);
    wait_for_state(&rig, &id, SandboxState::Paused).await;
    assert_eq!(rig.lifecycle_events(&id).await.unwrap().pop().unwrap().data["reason"], "timeout");
    let refused = rig.engine.sandbox("test", &id).execute(command("true")).await.err().unwrap();
    assert!(matches!(refused, EngineError::Sandbox(SandboxError::Refused(_))), "{refused:?}");
    rig.engine.sandbox("test", &id).resume().await.unwrap();
    assert_eq!(rig.output(&id, "pgrep -xc sleep").await.unwrap(), "1\n");
    rig.engine.sandbox("test", &id).terminate("request").await.unwrap();
    assert_eq!(wait_for_resources(rig.layout(), &Expected::default()).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_a_running_sandbox_is_measured() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        let used = async || rig.driver.resource_use(&id).await.unwrap().unwrap();
        let before = used().await;
        rig.output(
            &id,
            "head -c 8M /dev/urandom > file; sync; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done",
        )
        .await
        .unwrap();
        let after = used().await;
        assert!(after.cpu_us > before.cpu_us + 50_000, "{before:?} {after:?}");
        assert!(after.disk >= before.disk + (8 << 20), "{before:?} {after:?}");
        assert!(after.memory_cache <= after.memory && after.memory > 0, "{after:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_sandbox_is_not_found_and_only_its_owner_sees_the_reason() {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        let stranger = rig.engine.sandbox("other", &id).status().await.unwrap_err();
        assert!(
            matches!(stranger, EngineError::Sandbox(SandboxError::NotFound { terminated: None })),
            "{stranger:?}"
        );
        let stranger = rig.engine.sandbox("other", &id).terminate("request").await.unwrap_err();
        assert!(
            matches!(stranger, EngineError::Sandbox(SandboxError::NotFound { terminated: None })),
            "{stranger:?}"
        );
        let ended = rig.engine.sandbox("test", &id).terminate("request").await.unwrap();
        let why = |error: EngineError| match error {
            EngineError::Sandbox(SandboxError::NotFound { terminated }) => terminated,
            other => panic!("{other:?}"),
        };
        let expected = Some((ended.terminated_at, "request".to_owned()));
        assert_eq!(why(rig.engine.sandbox("test", &id).status().await.unwrap_err()), expected);
        assert_eq!(why(rig.engine.sandbox("test", &id).pause().await.unwrap_err()), expected);
        assert_eq!(why(rig.engine.sandbox("test", &id).resume().await.unwrap_err()), expected);
        assert_eq!(why(rig.engine.sandbox("test", &id).terminate("again").await.unwrap_err()), expected);
        let Err(error) = rig.engine.sandbox("test", &id).execute(command("true")).await else {
            panic!("a command ran in a terminated sandbox")
        };
        assert_eq!(why(error), expected);
        assert_eq!(why(rig.engine.sandbox("other", &id).status().await.unwrap_err()), None);
        assert_eq!(
            why(rig.engine.sandbox("test", &"sb_neverwas".parse().unwrap()).status().await.unwrap_err()),
            None
        );
    })
    .await;
}

/// The capacity for a number of sandboxes of the usual size.
fn capacity_for(count: u64) -> Capacity {
    Capacity { cpu: 2 * count, memory_mb: 2048 * count, disk_mb: 5120 * count }
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_and_resumes_beyond_capacity_are_refused() {
    let tight = RigOptions { capacity: Capacity { cpu: 4, ..capacity_for(10) }, ..RigOptions::default() };
    with_rig(tight, async |rig| {
        let (first, second) = (rig.create().await.unwrap(), rig.create().await.unwrap());
        let error = create_with(rig, config()).await.unwrap_err();
        assert!(matches!(error, EngineError::Capacity(CapacityError::NoCapacity(_))), "{error:?}");
        // A paused sandbox frees its processors; its resume may be refused.
        rig.engine.sandbox("test", &first).pause().await.unwrap();
        let third = rig.create().await.unwrap();
        let error = rig.engine.sandbox("test", &first).resume().await.unwrap_err();
        assert!(matches!(error, EngineError::Capacity(CapacityError::NoCapacity(_))), "{error:?}");
        rig.engine.sandbox("test", &third).terminate("request").await.unwrap();
        rig.engine.sandbox("test", &first).resume().await.unwrap();
        for id in [&first, &second] {
            rig.engine.sandbox("test", id).terminate("request").await.unwrap();
        }
        let (_, used) = rig.engine.capacity();
        assert_eq!((used.cpu, used.memory_mb, used.disk_mb), (0, 0, 0));
        assert_eq!(wait_for_resources(rig.layout(), &Expected::default()).await, Vec::<String>::new());
    })
    .await;
    with_rig(RigOptions { capacity: capacity_for(2), pool: 2, ..RigOptions::default() }, async |rig| {
        rig.wait_for_full_pool().await;
        // The warm pool uses the whole capacity and is evicted.
        let large = Resources { disk_mb: 2 * 5120, cpu: 2, memory_mb: 2048 };
        create_with(rig, SandboxConfig { resources: large, ..config() }).await.unwrap();
        let error = create_with(rig, config()).await.unwrap_err();
        assert!(matches!(error, EngineError::Capacity(CapacityError::NoCapacity(_))), "{error:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_concurrent_creates_get_different_sandboxes() {
    let rig = Rig::new(RigOptions { pool: 10, ..RigOptions::default() }).await.unwrap();
    rig.wait_for_full_pool().await;
    let engine = rig.engine.clone();
    let begin = Instant::now();
    let creating: Vec<_> = (0..50)
        .map(|_| {
            let (engine, template) = (engine.clone(), rig.template.clone());
            tokio::spawn(async move {
                engine.create("test", config(), template, None).await.unwrap().record.id.clone()
            })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for id in creating {
        assert!(ids.insert(id.await.unwrap()), "a sandbox was handed out twice");
    }
    println!("50 creates against a pool of 10: {:?}", begin.elapsed());
    for id in &ids {
        rig.output(id, "mkdir mine").await.unwrap();
    }
    rig.wait_for_full_pool().await;
    rig.engine.shutdown().await;
    let strays = wait_for_resources(rig.layout(), &Expected { alive: ids, ..Expected::default() }).await;
    assert_eq!(strays, Vec::<String>::new(), "the pool is not drained");
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_sandbox_gets_the_requested_size_and_directory() {
    if RigOptions::default().isolation == api::Isolation::Gvisor {
        // A sandbox under gVisor shows its size, so only those of the requested size are claimed.
        return;
    }
    with_rig(RigOptions { pool: 1, ..RigOptions::default() }, async |rig| {
        rig.wait_for_full_pool().await;
        let provisioned: BTreeSet<_> = rig.driver.list().await.unwrap().into_iter().collect();
        let resources = Resources { cpu: 1, memory_mb: 3000, ..config().resources };
        let wanted = SandboxConfig { resources, workdir: "/srv/else/where".to_owned(), ..config() };
        let id = create_with(rig, wanted).await.unwrap();
        assert!(provisioned.contains(&id), "it was not claimed from the pool");
        assert_eq!(rig.output(&id, "nproc; pwd").await.unwrap(), "1\n/srv/else/where\n");
        let file = |v1: &str, v2: &str| {
            let paths = [v1, v2].map(|file| {
                let (controller, file) = file.split_once('/').unwrap();
                std::path::Path::new("/sys/fs/cgroup")
                    .join(controller)
                    .join(&rig.name)
                    .join(id.as_str())
                    .join(file)
            });
            let text = paths.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap();
            text.trim().to_owned()
        };
        assert_eq!(file("memory/memory.limit_in_bytes", "./memory.max"), (3000_u64 << 20).to_string());
        let quota = file("cpu/cpu.cfs_quota_us", "./cpu.max");
        assert_eq!(quota.split(' ').next(), Some("19000"));
        // Programs count the processors by the quota.
        let shown = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cat /sys/fs/cgroup/cpu.max";
        let shown = rig.output(&id, shown).await.unwrap();
        assert_eq!(
            shown.split_whitespace().next(),
            Some(if RigOptions::default().runtime.is_some() { "19000" } else { "20000" })
        );
        assert_eq!(file("cpuset/cpuset.cpus", "./cpuset.cpus").split(',').count(), 1);
    })
    .await;
}
