//! The example programs of the client library against a real service.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use e2e::service::Service;

use crate::{key, service};

/// The output of an example.
async fn example_output(name: &str) -> String {
    let service = service().await;
    let mut command = example(&service, name).await;
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    stdout
}

/// The command of an example. Examples are built with the tests of the workspace.
async fn example(service: &Service, name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        example.exists(),
        "no {}: run 'cargo build --release -p sandboxd-client --examples' first",
        example.display()
    );
    // starts: sbx
    let mut command = Command::new(example);
    command
        .env("SANDBOXD_URL", format!("https://{}", service.address))
        .env("SANDBOXD_API_KEY", key(service).await)
        .env("SANDBOXD_CERTIFICATE", service.certificate_file().unwrap())
        .env("IMAGE", Service::image());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_agent_loop_fixes_a_failing_test() {
    let stdout = example_output("agent_loop").await;
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.first(), Some(&"test before: failed"), "{stdout}");
    assert!(lines.contains(&"test after: passed"), "{stdout}");
    let kinds = lines.iter().find_map(|line| line.strip_prefix("events of the run: ")).unwrap();
    for kind in ["agent.thinking", "agent.tool_call", "agent.tool_result", "exec.completed", "file.created"] {
        assert!(kinds.contains(kind), "{kinds:?} lacks {kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_parallel_map_uses_twenty_sandboxes() {
    let stdout = example_output("parallel_map").await;
    let mut lines: Vec<&str> = stdout.lines().collect();
    let last = lines.pop().unwrap();
    let expected: Vec<String> = (1..=20).map(|n| format!("{n}: {}", n * n)).collect();
    assert_eq!(lines, expected);
    assert_eq!(last, "20 sandboxes, 0 left");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_code_interpreter_keeps_state_between_cells() {
    let stdout = example_output("code_interpreter").await;
    assert_eq!(
        stdout,
        "[1] x=6\n[2] y=$((x * 7))\n[3] echo \"the answer is $y\"\nthe answer is 42\n\
         [4] double() { echo $(($1 * 2)); }\n[5] double $y\n84\n[6] no_such_command\n\
         error: no_such_command: command not found\n[7] echo \"still $y\"\nstill 42\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_web_preview_serves_a_changing_page() {
    let service = service().await;
    let mut command = example(&service, "web_preview").await;
    let certificate = service.certificate_file().unwrap();
    let session = move || {
        let mut app = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(app.stdout.take().unwrap()).lines();
        let mut input = app.stdin.take().unwrap();
        let url = output.next().unwrap().unwrap();
        let fetch = || {
            let curl = Command::new("curl").args(["-sSf", "--cacert"]).arg(&certificate).arg(&url).output();
            let page = curl.unwrap();
            assert!(page.status.success(), "{url}: {}", String::from_utf8_lossy(&page.stderr));
            String::from_utf8(page.stdout).unwrap()
        };
        let first = fetch();
        writeln!(input).unwrap();
        let message = output.next().unwrap().unwrap();
        let second = fetch();
        writeln!(input).unwrap();
        assert!(app.wait().unwrap().success());
        (first, message, second)
    };
    let seen = tokio::task::spawn_blocking(session).await.unwrap();
    let expected = ["<h1>first draft</h1>\n", "changed: look again", "<h1>second draft</h1>\n"];
    assert_eq!([seen.0, seen.1, seen.2], expected);
}
