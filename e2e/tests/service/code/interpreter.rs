//! The code interpreter: results, contexts, interrupts, bounded output, dead kernels, pauses and restarts of the daemon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use e2e::code_image;
use e2e::service::{Client, Events, Service, ServiceOptions, small, with};
use hyper::Method;
use serde_json::{Value, json};

use crate::{action_path, output, sandbox_path, text, user, wait_until};

/// A sandbox with the interpreter.
async fn interpreter() -> (Arc<Service>, Client, String) {
    tokio::task::spawn_blocking(code_image::build).await.unwrap().unwrap();
    let (service, client) = user().await;
    let id = create(&client).await;
    (service, client, id)
}

async fn create(client: &Client) -> String {
    let body = with(small(), "image", json!(code_image::IMAGE));
    text(&client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap()["id"])
}

async fn run(client: &Client, id: &str, body: Value) -> Value {
    client.post(&action_path(id, "code"), &body).await.unwrap().is(200).unwrap()
}

async fn python(client: &Client, id: &str, code: &str) -> Value {
    run(client, id, json!({ "code": code })).await
}

/// The text of the only result.
async fn value(client: &Client, id: &str, body: Value) -> String {
    let execution = run(client, id, body).await;
    assert_eq!(execution["exception"], json!(null), "{execution}");
    text(&execution["results"][0]["text"])
}

async fn stream(client: &Client, id: &str, code: &str) -> Events {
    let client = client.with_own_connections();
    client.call(Method::POST, &action_path(id, "code")).json(&json!({ "code": code })).stream().await.unwrap()
}

fn contexts_path(id: &str, rest: &str) -> String {
    format!("{}/code/contexts{rest}", sandbox_path(id))
}

#[tokio::test]
async fn results_have_their_forms() {
    let (_service, client, id) = interpreter().await;
    let plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 4])\nplt.show()";
    let execution = python(&client, &id, plot).await;
    let png = text(&execution["results"][0]["png"]);
    assert!(png.starts_with("iVBORw0KGgo"), "not a PNG: {execution}");
    assert_eq!(execution["results"][0]["isMainResult"], false);

    let frame = "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None]})";
    let result = python(&client, &id, frame).await["results"][0].take();
    assert!(text(&result["html"]).contains("<table"), "{result}");
    assert_eq!(result["data"], json!({ "a": [1, 2], "b": ["x", null] }));
    assert_eq!(result["isMainResult"], true);

    let display = "from IPython.display import *\n\
        display(Markdown('# m')); display(Latex('$x$')); display(JSON({'k': [1]})); display(Javascript('1'))\n\
        display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')); display(HTML('<b>h</b>'))";
    let results = python(&client, &id, display).await["results"].take();
    let has = |field: &str| results.as_array().unwrap().iter().any(|result| !result[field].is_null());
    for field in ["markdown", "latex", "json", "javascript", "svg", "html"] {
        assert!(has(field), "{field}: {results}");
    }

    let failed = python(&client, &id, "print('before')\ndef f():\n    return 1 / 0\nf()").await;
    assert_eq!(failed["stdout"], "before\n");
    assert_eq!(failed["exception"]["name"], "ZeroDivisionError");
    assert!(text(&failed["exception"]["traceback"]).contains("in"), "{failed}");
}

#[tokio::test]
async fn contexts_keep_their_state_and_are_isolated() {
    let (_service, client, id) = interpreter().await;
    python(&client, &id, "x = 41").await;
    assert_eq!(value(&client, &id, json!({ "code": "x + 1" })).await, "42");
    let body = json!({ "language": "python", "cwd": "/tmp" });
    let other = client.post(&contexts_path(&id, ""), &body).await.unwrap().is(201).unwrap();
    let other = text(&other["contextId"]);
    let missing = run(&client, &id, json!({ "code": "x", "contextId": other })).await;
    assert_eq!(missing["exception"]["name"], "NameError");
    assert_eq!(missing["contextId"], json!(other));
    let cwd = value(&client, &id, json!({ "code": "import os; os.getcwd()", "contextId": other })).await;
    assert_eq!(cwd, "'/tmp'");
    let list = client.get(&contexts_path(&id, "")).await.unwrap().is(200).unwrap();
    assert_eq!(list["data"].as_array().unwrap().len(), 2, "{list}");

    run(&client, &id, json!({ "code": "y = 1", "contextId": other })).await;
    client.post_empty(&contexts_path(&id, &format!("/{other}/restart"))).await.unwrap().is(200).unwrap();
    let restarted = run(&client, &id, json!({ "code": "y", "contextId": other })).await;
    assert_eq!(restarted["exception"]["name"], "NameError");
    client.delete(&contexts_path(&id, &format!("/{other}"))).await.unwrap().is(200).unwrap();
    let gone =
        client.post(&action_path(&id, "code"), &json!({ "code": "1", "contextId": other })).await.unwrap();
    gone.error(404, "CONTEXT_NOT_FOUND").unwrap();
    client
        .delete(&contexts_path(&id, "/..%2Fexecute"))
        .await
        .unwrap()
        .error(404, "CONTEXT_NOT_FOUND")
        .unwrap();
}

#[tokio::test]
async fn bash_and_javascript_keep_their_state_and_env_lasts_for_one_execution() {
    let (_service, client, id) = interpreter().await;
    let bash = |code: &str| json!({ "code": code, "language": "bash", "env": { "Q": "it's" } });
    assert_eq!(run(&client, &id, bash("A=3; cd /tmp; echo $Q")).await["stdout"], "it's\n");
    let second = run(&client, &id, json!({ "code": "echo $A $PWD \"<$Q>\"", "language": "bash" })).await;
    assert_eq!(second["stdout"], "3 /tmp <>\n");
    let failed = run(&client, &id, bash("false")).await;
    assert_eq!(failed["exception"]["name"], "ExitStatus");
    let js = |code: &str| json!({ "code": code, "language": "javascript" });
    assert_eq!(value(&client, &id, js("const y = await Promise.resolve(4); y * 2")).await, "8");
    assert_eq!(value(&client, &id, js("y + 1")).await, "5");
    assert_eq!(run(&client, &id, js("throw new TypeError('bad')")).await["exception"]["name"], "TypeError");
    let unknown =
        client.post(&action_path(&id, "code"), &json!({ "code": "1", "language": "cobol" })).await.unwrap();
    unknown.error(400, "INVALID_CONFIG").unwrap();
}

#[tokio::test]
async fn a_disconnect_and_a_timeout_interrupt_the_code() {
    let (_service, client, id) = interpreter().await;
    python(&client, &id, "x = 1").await;
    let mut events = stream(&client, &id, "import time\nprint('begun', flush=True)\ntime.sleep(600)").await;
    let begun = events.next().await.unwrap().unwrap();
    assert_eq!((begun.name.as_str(), &begun.json().unwrap()["text"]), ("stdout", &json!("begun\n")));
    drop(events);
    let began = Instant::now();
    assert_eq!(value(&client, &id, json!({ "code": "x" })).await, "1", "the state is lost");
    assert!(began.elapsed() < Duration::from_secs(10), "not interrupted");
    for (language, code) in
        [("python", "while True: pass"), ("javascript", "for (;;);"), ("bash", "while :; do sleep 1; done")]
    {
        // The start of its interpreter counts towards no timeout below: it takes longer on a busy machine.
        run(&client, &id, json!({ "code": "1", "language": language })).await;
        let body = json!({ "code": code, "language": language, "timeoutMs": 3000 });
        assert_eq!(run(&client, &id, body).await["exception"]["name"], "Timeout", "{language}");
        let after = run(&client, &id, json!({ "code": "1", "language": language })).await;
        assert_ne!(after["exception"]["name"], "Timeout", "{language}: {after}");
    }
    assert_eq!(value(&client, &id, json!({ "code": "x" })).await, "1", "the state is lost");
}

#[tokio::test]
async fn output_is_bounded() {
    let (_service, client, id) = interpreter().await;
    let execution = python(&client, &id, "for _ in range(50):\n    print('x' * (1 << 20))").await;
    let stdout = text(&execution["stdout"]);
    assert!(stdout.len() < 9 << 20, "{} bytes", stdout.len());
    assert!(stdout.contains("[output omitted"), "no mark");
    assert_eq!(execution["outputTruncated"], true);
    assert!(python(&client, &id, "print(1)").await["outputTruncated"].is_null());
    let huge = python(&client, &id, "from IPython.display import HTML\nHTML('x' * (50 << 20))").await;
    assert!(text(&huge["results"][0]["text"]).starts_with("[result omitted"), "{:.200}", huge.to_string());
    assert_eq!(value(&client, &id, json!({ "code": "1 + 1" })).await, "2");
}

#[tokio::test]
async fn a_dead_kernel_is_reported_and_replaced() {
    let (_service, client, id) = interpreter().await;
    python(&client, &id, "x = 1").await;
    let died = python(&client, &id, "import os; os._exit(1)").await;
    assert_eq!(died["exception"]["name"], "KernelDied");
    assert!(text(&died["exception"]["value"]).contains("exit code 1"), "{died}");
    assert_eq!(python(&client, &id, "x").await["exception"]["name"], "NameError");
    // Under gVisor this ends all processes of the sandbox; e2e/tests/gvisor.rs tests that.
    if e2e::isolation() == api::Isolation::Container {
        let memory = python(&client, &id, "b = []\nwhile True: b.append(bytearray(64 << 20))").await;
        assert!(
            ["KernelDied", "MemoryError"].contains(&memory["exception"]["name"].as_str().unwrap()),
            "{memory}"
        );
        assert_eq!(value(&client, &id, json!({ "code": "1 + 1" })).await, "2");
    }
    // The interpreter itself is started anew.
    output(&client, &id, "pkill -9 -f '[m] code_interpreter'").await;
    wait_until("the interpreter runs again", async || {
        let answer = client.post(&action_path(&id, "code"), &json!({ "code": "2 + 2" })).await.unwrap();
        answer.status == 200 && answer.json().unwrap()["results"][0]["text"] == "4"
    })
    .await;
}

#[tokio::test]
async fn code_ends_with_its_context() {
    let (_service, client, id) = interpreter().await;
    for language in ["python", "bash"] {
        for ending in [Method::POST, Method::DELETE] {
            let body = json!({ "language": language });
            let context = client.post(&contexts_path(&id, ""), &body).await.unwrap().is(201).unwrap();
            let context = text(&context["contextId"]);
            let begun = format!("/tmp/begun-{language}-{ending}");
            let code = match language {
                "python" => format!("import time; open('{begun}', 'w'); time.sleep(60)"),
                _ => format!("touch {begun}; sleep 60"),
            };
            let (runner, runs_in) = (client.with_own_connections(), id.clone());
            let body = json!({ "code": code, "contextId": context });
            let running = tokio::spawn(async move { run(&runner, &runs_in, body).await });
            let probe = format!("test -e {begun} && echo yes; true");
            wait_until("the code runs", async || output(&client, &id, &probe).await == "yes\n").await;
            let path =
                if ending == Method::POST { format!("/{context}/restart") } else { format!("/{context}") };
            client.call(ending, &contexts_path(&id, &path)).send().await.unwrap().is(200).unwrap();
            assert_eq!(running.await.unwrap()["exception"]["name"], "KernelDied", "{language}");
        }
    }
}

#[tokio::test]
async fn a_full_disk_is_named() {
    let (_service, client, id) = interpreter().await;
    let context = text(&python(&client, &id, "1").await["contextId"]);
    output(&client, &id, "fallocate -l $(df --output=avail -B1 /workspace | tail -1) /workspace/full; cat /dev/zero > /workspace/rest; true").await;
    let new = client.post(&contexts_path(&id, ""), &json!({ "language": "python" })).await.unwrap();
    new.error(507, "DISK_FULL").unwrap();
    let restarted = client.post_empty(&contexts_path(&id, &format!("/{context}/restart"))).await.unwrap();
    restarted.error(507, "DISK_FULL").unwrap();
    let code = client.post(&action_path(&id, "code"), &json!({ "code": "1" })).await.unwrap();
    code.error(507, "DISK_FULL").unwrap();
    output(&client, &id, "rm /workspace/full /workspace/rest").await;
    assert_eq!(value(&client, &id, json!({ "code": "1 + 1" })).await, "2");
}

#[tokio::test]
async fn a_context_survives_pause_and_resume() {
    let (_service, client, id) = interpreter().await;
    python(&client, &id, "x = 7").await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    let refused = json!({ "code": "x", "autoResume": false });
    client.post(&action_path(&id, "code"), &refused).await.unwrap().error(409, "INVALID_STATE").unwrap();
    assert_eq!(value(&client, &id, json!({ "code": "x" })).await, "7");
}

#[tokio::test]
async fn a_restart_of_the_daemon_interrupts_the_code_and_keeps_its_context() {
    tokio::task::spawn_blocking(code_image::build).await.unwrap().unwrap();
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create(&client).await;
    python(&client, &id, "x = 7").await;
    let mut events = stream(&client, &id, "import time\nprint('begun', flush=True)\ntime.sleep(600)").await;
    events.next().await.unwrap().unwrap();
    service.kill().unwrap();
    drop(events);
    service.start_process().await.unwrap();
    let began = Instant::now();
    assert_eq!(value(&client, &id, json!({ "code": "x" })).await, "7");
    assert!(began.elapsed() < Duration::from_secs(20), "not interrupted");
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn code_has_the_events_of_a_command() {
    let (_service, client, id) = interpreter().await;
    python(&client, &id, "print('abc')\n1 / 0").await;
    let path = action_path(&id, "events?kinds=exec.*");
    let completed = async || {
        let events = client.get(&path).await.unwrap().is(200).unwrap();
        let events = events["data"].as_array().unwrap().clone();
        events.into_iter().find(|event| event["type"] == "exec.completed")
    };
    wait_until("the end is recorded", async || completed().await.is_some()).await;
    let data = completed().await.unwrap()["data"].take();
    assert_eq!((&data["exitCode"], &data["stdoutBytes"]), (&json!(1), &json!(4)), "{data}");
    assert!(text(&data["command"]).starts_with("print('abc')"));
}

#[tokio::test]
async fn the_program_passes_its_own_tests() {
    let (_service, client, id) = interpreter().await;
    let tests = [
        ("context", include_str!("../../../../packaging/code-interpreter/tests/test_context.py")),
        ("memory", include_str!("../../../../packaging/code-interpreter/tests/test_memory.py")),
        ("output", include_str!("../../../../packaging/code-interpreter/tests/test_output.py")),
    ];
    let execute = async |command: String, stdin: &str| {
        let body = json!({ "command": command, "stdin": stdin });
        client.post(&action_path(&id, "execute"), &body).await.unwrap().is(200).unwrap()
    };
    for (name, text) in tests {
        let written =
            execute(format!("mkdir -p /tmp/p/tests && cat > /tmp/p/tests/test_{name}.py"), text).await;
        assert_eq!(written["exitCode"], 0, "{written}");
    }
    let command = "cd /tmp/p && ln -s /usr/local/lib/code-interpreter/code_interpreter . && python3 -m unittest discover -s tests";
    let result = execute(command.to_owned(), "").await;
    assert_eq!(result["exitCode"], 0, "{result}");
    assert!(text(&result["stderr"]).contains("OK"), "{result}");
}
