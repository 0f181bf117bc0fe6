//! Running commands, and the ways in which a command can end.

use std::time::{Duration, Instant};

use e2e::service::{Service, ServiceOptions};
use serde_json::{Value, json};

use crate::{
    SANDBOXES, action_path, create_sandbox, number, output, run_command, sandbox_path, small, text, user,
    with,
};

fn outcome(result: &Value) -> (Value, Value) {
    (result["exitCode"].clone(), result["signal"].clone())
}

#[tokio::test]
async fn output_exit_code_and_duration_are_returned() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for (command, stdout, stderr, code) in [
        ("echo out; echo err >&2", "out\n", "err\n", 0),
        ("printf 'no newline'", "no newline", "", 0),
        ("exit 7", "", "", 7),
        ("exit 255", "", "", 255),
        ("", "", "", 0),
        ("no-such-program 2>/dev/null", "", "", 127),
        ("-x 2>/dev/null", "", "", 127),
        ("+x 2>/dev/null", "", "", 127),
        ("echo $0 $BASH_VERSION | cut -d' ' -f1", "bash\n", "", 0),
        ("printf 'h\\u00e9 \\xf0\\x9f\\x98\\x80'", "hé 😀", "", 0),
        ("x=$'a\\nb'; echo \"$x\" | { read -r y; echo $y; }", "a\n", "", 0),
    ] {
        let result = run_command(&client, &id, json!({ "command": command })).await;
        assert_eq!(
            (text(&result["stdout"]).as_str(), text(&result["stderr"]).as_str()),
            (stdout, stderr),
            "{command}"
        );
        assert_eq!(outcome(&result), (json!(code), Value::Null), "{command}");
    }
    let result = run_command(&client, &id, json!({ "command": "sleep 0.3" })).await;
    assert!((300..5_000).contains(&number(&result["durationMs"])), "{result}");
}

#[tokio::test]
async fn cwd_env_and_stdin_apply() {
    let (_service, client) = user().await;
    let body =
        with(with(small(), "env", json!({ "A": "sandbox", "B": "sandbox" })), "workdir", json!("/srv/w"));
    let id = text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]);
    assert_eq!(output(&client, &id, "pwd; echo $A $B").await, "/srv/w\nsandbox sandbox\n");
    let body = json!({ "command": "pwd; echo $A $B $C; cat", "cwd": "/tmp", "env": { "B": "execute", "C": "c" }, "stdin": "line\nend" });
    let result = run_command(&client, &id, body).await;
    assert_eq!(result["stdout"], "/tmp\nsandbox execute c\nline\nend");
    // Variables of a command apply to that command only.
    assert_eq!(output(&client, &id, "echo $A $B $C; wc -c").await, "sandbox sandbox\n0\n");
    let long = "x".repeat(3_000_000);
    let result = run_command(&client, &id, json!({ "command": "wc -c", "stdin": long })).await;
    assert_eq!(result["stdout"], "3000000\n");
    // A command that does not read its stdin ends normally.
    let result = run_command(&client, &id, json!({ "command": "echo done", "stdin": long })).await;
    assert_eq!(result["stdout"], "done\n");
}

#[tokio::test]
async fn a_command_that_cannot_start_reports_the_reason() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    output(&client, &id, "touch /file").await;
    for cwd in ["/no/such/place", "/file"] {
        let result = run_command(&client, &id, json!({ "command": "echo no", "cwd": cwd })).await;
        assert_eq!(outcome(&result), (Value::Null, Value::Null), "{result}");
        assert_eq!(result["stdout"], "");
        assert!(text(&result["stderr"]).contains(cwd), "{result}");
    }
}

#[tokio::test]
async fn a_command_that_times_out_is_killed_with_its_process_tree() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let command = "echo partial; setsid bash -c 'while :; do echo >> /beat; sleep 0.02; done' & sleep 600";
    let begin = Instant::now();
    let result = run_command(&client, &id, json!({ "command": command, "timeoutMs": 700 })).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(outcome(&result), (Value::Null, json!("SIGKILL")));
    assert_eq!(result["reason"], "timeout");
    assert_eq!(result["message"], "the command was killed at its timeoutMs of 700");
    assert_eq!(result["stdout"], "partial\n");
    assert!((700..3_000).contains(&number(&result["durationMs"])), "{result}");
    let beats = output(&client, &id, "wc -l < /beat; sleep 0.3; wc -l < /beat").await;
    let beats: Vec<&str> = beats.lines().collect();
    assert_eq!(beats[0], beats[1], "a process in another session continues");
}

#[tokio::test]
async fn signals_are_named_if_bash_itself_is_killed() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for (command, code, signal) in [
        ("kill -KILL $$", Value::Null, json!("SIGKILL")),
        ("kill -TERM $$", Value::Null, json!("SIGTERM")),
        ("kill -SEGV $$", Value::Null, json!("SIGSEGV")),
        ("bash -c 'kill -KILL $$'; exit $?", json!(137), Value::Null),
        ("bash -c 'kill -TERM $$'; exit $?", json!(143), Value::Null),
    ] {
        let result = run_command(&client, &id, json!({ "command": command })).await;
        assert_eq!(outcome(&result), (code, signal), "{command}: {result}");
        assert_eq!(result["reason"], "signal", "{command}: {result}");
    }
    for own in ["true", "exit 1", "exit 129", "bash -c 'exit 2'"] {
        let result = run_command(&client, &id, json!({ "command": own })).await;
        assert_eq!((result.get("reason"), result.get("message")), (None, None), "{own}: {result}");
    }
}

/// The command is killed by the kernel, and others of the sandbox are not.
#[tokio::test]
async fn a_command_that_runs_out_of_memory_names_the_limit() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for hog in ["tail /dev/zero", "(tail /dev/zero); exit $?"] {
        let result = run_command(&client, &id, json!({ "command": hog })).await;
        assert_eq!(result["reason"], "oom", "{hog}: {result}");
        assert!(text(&result["message"]).contains("at its limit of 2048 MB"), "{hog}: {result}");
    }
    // What was killed before is not the reason of a later end.
    let result = run_command(&client, &id, json!({ "command": "kill -KILL $$" })).await;
    assert_eq!(result["reason"], "signal", "{result}");
}

#[tokio::test]
async fn background_processes_continue_and_do_not_delay_the_response() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let begin = Instant::now();
    let result =
        run_command(&client, &id, json!({ "command": "echo before; sleep 60 & echo $! > /pid; echo after" }))
            .await;
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(result["stdout"], "before\nafter\n");
    assert_eq!(output(&client, &id, "kill -0 $(cat /pid) && echo alive").await, "alive\n");
}

#[tokio::test]
async fn binary_output_is_converted_to_text() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let result = run_command(&client, &id, json!({ "command": "printf 'a\\xff\\xfeb\\0c\\xe2\\x82'" })).await;
    assert_eq!(result["stdout"], "a\u{fffd}\u{fffd}b\0c\u{fffd}");
}

/// Output above the cap is reduced to head and tail, with a gap line that states the number of missing bytes.
#[tokio::test]
async fn output_above_the_cap_is_truncated_in_the_middle() {
    let options = ServiceOptions::default().with("limits", "max_output_bytes", "4096");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let result = run_command(&client, &id, json!({ "command": "seq 1 100000; echo short >&2" })).await;
    assert_eq!((&result["stdoutTruncated"], result.get("stderrTruncated")), (&json!(true), None));
    let stdout = text(&result["stdout"]);
    assert!(stdout.starts_with("1\n2\n3\n") && stdout.ends_with("99999\n100000\n"), "{stdout}");
    assert!((4_000..4_400).contains(&stdout.len()), "{} bytes", stdout.len());
    let all: usize = (1..=100_000).map(|n: u32| n.to_string().len() + 1).sum();
    let missing = (all - 4096).to_string();
    assert!(stdout.contains(&missing), "{stdout} does not state the {missing} missing bytes");
    let exact = run_command(&client, &id, json!({ "command": "head -c 4096 /dev/zero | tr '\\0' x" })).await;
    assert_eq!((text(&exact["stdout"]).len(), exact.get("stdoutTruncated")), (4096, None));
}

#[tokio::test]
async fn large_output_is_complete() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let result = run_command(&client, &id, json!({ "command": "seq 1 1000000; seq 1 200000 >&2" })).await;
    let sum = |name: &str| text(&result[name]).lines().map(|line| line.parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!((sum("stdout"), sum("stderr")), (500_000_500_000, 20_000_100_000));
}

#[tokio::test]
async fn at_most_three_commands_run_concurrently() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let path = action_path(&id, "execute");
    let running = crate::start_sleepers(&client, &id, 3).await;
    let answer = client.post(&path, &json!({ "command": "true" })).await.unwrap();
    let error = answer.error(429, "RATE_LIMITED").unwrap();
    assert!(text(&error["message"]).contains('3'), "{error}");
    // Streams are refused with a plain error too.
    let call = client.call(hyper::Method::POST, &path).header("accept", "text/event-stream");
    call.json(&json!({ "command": "true" })).send().await.unwrap().error(429, "RATE_LIMITED").unwrap();
    drop(running);
    crate::wait_until("the slots are free", async || {
        client.post(&path, &json!({ "command": "true" })).await.unwrap().status == 200
    })
    .await;
}

#[tokio::test]
async fn a_command_without_a_slot_does_not_resume_the_sandbox() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let running = crate::start_sleepers(&client, &id, 3).await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    let answer = client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
    answer.error(429, "RATE_LIMITED").unwrap();
    let sandbox = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(sandbox["state"], "paused");
    client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
    drop(running);
}

/// A slot is free when the response has been sent.
#[tokio::test]
async fn slots_are_free_when_the_response_is_sent() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for _ in 0..15 {
        let calls: Vec<_> = (0..3)
            .map(|_| {
                let (client, path) = (client.clone(), action_path(&id, "execute"));
                tokio::spawn(async move {
                    client.post(&path, &json!({ "command": "true" })).await.unwrap().status
                })
            })
            .collect();
        for call in calls {
            assert_eq!(call.await.unwrap(), 200);
        }
    }
}

#[tokio::test]
async fn an_execution_queue_lets_commands_wait() {
    let options = ServiceOptions::default().with("limits", "concurrent_executions", "1").with(
        "limits",
        "execution_queue",
        "2",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let begin = Instant::now();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let (client, path) = (client.with_own_connections(), action_path(&id, "execute"));
            tokio::spawn(async move {
                client.post(&path, &json!({ "command": "sleep 0.5" })).await.unwrap().status
            })
        })
        .collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert!(begin.elapsed() >= Duration::from_millis(1_500), "they ran concurrently");
}
