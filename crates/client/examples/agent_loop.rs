//! An agent that fixes a failing test in a sandbox. The model is scripted, so that the example runs anywhere; `Model::next` is the place
//! for a real one. The actions of model and sandbox are one run, listed as events of the service.
//!
//! `cargo run -p sandboxd-client --example agent_loop`, with a service as `Client::from_env` finds it.

use futures_util::TryStreamExt;
use sandboxd_client::{Client, EventKind, LlmCost, Run, Sandbox};
use serde_json::{Value, json};

const PROGRAM: &str = "add() { echo $(($1 - $2)); }\n";
const TEST: &str = r#"source ./add.sh
got=$(add 2 3)
if [ "$got" != 5 ]; then echo "add 2 3: expected 5, got $got"; exit 1; fi
echo ok
"#;

/// An action that the model requests.
enum Wish {
    Shell(&'static str),
    ReadFile(&'static str),
    WriteFile(&'static str, String),
    Done,
}

/// The scripted model.
struct Model;

impl Model {
    /// The next action, given the result of the last one.
    fn next(&self, seen: &str) -> (&'static str, Wish) {
        match seen {
            "" => ("I run the test first.", Wish::Shell("bash test.sh")),
            seen if seen.contains("expected 5, got -1") => {
                ("2 and 3 make -1: the sign is wrong. I read the program.", Wish::ReadFile("add.sh"))
            }
            seen if seen.contains("$1 - $2") => {
                ("There it is.", Wish::WriteFile("add.sh", seen.replace("$1 - $2", "$1 + $2")))
            }
            "written" => ("Now the test again.", Wish::Shell("bash test.sh")),
            _ => ("It passes.", Wish::Done),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::from_env()?;
    let image = std::env::var("IMAGE").unwrap_or_else(|_| "ubuntu:24.04".to_owned());
    let run = Run::new();
    let sandbox = client.create(image).run(&run).await?.terminate_on_drop();
    let run = run.to_service(&sandbox);
    sandbox.files().write("add.sh", PROGRAM).await?;
    sandbox.files().write("test.sh", TEST).await?;
    println!("test before: {}", verdict(&sandbox).await?);

    let mut seen = String::new();
    loop {
        let (thought, wish) = Model.next(&seen);
        run.thinking(thought);
        run.llm_cost(&cost(&seen, thought));
        println!("model: {thought}");
        let (tool, arguments) = match &wish {
            Wish::Done => break,
            Wish::Shell(command) => ("shell", json!({ "command": command })),
            Wish::ReadFile(path) => ("read_file", json!({ "path": path })),
            Wish::WriteFile(path, _) => ("write_file", json!({ "path": path })),
        };
        run.tool_call(tool, arguments);
        seen = carry_out(&sandbox, wish).await?;
        run.tool_result(tool, Value::from(seen.as_str()));
    }
    println!("test after: {}", verdict(&sandbox).await?);

    run.delivered().await?;
    let mut kinds: Vec<&str> = Vec::new();
    let mut events = client.events().run(run.id()).stream();
    while let Some(event) = events.try_next().await? {
        if !kinds.contains(&event.kind.as_str()) && event.kind != EventKind::ExecStarted {
            kinds.push(event.kind.as_str());
        }
    }
    println!("events of the run: {}", kinds.join(" "));
    sandbox.terminate().await?;
    Ok(())
}

/// Carries out the action in the sandbox and returns the result for the model.
async fn carry_out(sandbox: &Sandbox, wish: Wish) -> sandboxd_client::Result<String> {
    match wish {
        Wish::Shell(command) => {
            let result = sandbox.execute(command).await?;
            Ok(result.stdout + &result.stderr)
        }
        Wish::ReadFile(path) => sandbox.files().read(path).text().await,
        Wish::WriteFile(path, content) => {
            sandbox.files().write(path, content).await?;
            Ok("written".to_owned())
        }
        Wish::Done => Ok(String::new()),
    }
}

async fn verdict(sandbox: &Sandbox) -> sandboxd_client::Result<&'static str> {
    let passed = sandbox.execute("bash test.sh").await?.exit_code == Some(0);
    Ok(if passed { "passed" } else { "failed" })
}

/// As in the response of a model.
fn cost(read: &str, written: &str) -> LlmCost {
    let (input_tokens, output_tokens) = (read.len() as u64 / 4, written.len() as u64 / 4);
    let amount = (input_tokens * 3 + output_tokens * 15) as f64 / 1e6;
    LlmCost { model: "scripted".into(), input_tokens, output_tokens, amount, currency: "USD".into() }
}
