//! A notebook session: cells run one after the other in one interpreter, which keeps variables, functions and its working directory.
//! The interpreter keeps running in the sandbox between the commands that send cells to it, and survives a pause.
//!
//! `cargo run -p sandboxd-client --example code_interpreter`, with a service as `Client::from_env` finds it.

use sandboxd_client::{Client, Sandbox};

/// Runs the cells named in one pipe and reports their end in another. It uses bash, which every image has; for Python use
/// `exec(open(cell).read(), state)`.
const INTERPRETER: &str = r#"
mkdir -p /tmp/session && cd /tmp/session && mkfifo wanted ended
(
  cd /workspace
  while read -r cell < /tmp/session/wanted; do
    source /tmp/session/$cell > /tmp/session/$cell.out 2>&1
    echo $? > /tmp/session/ended
  done
) < /dev/null > /dev/null 2>&1 &
"#;

struct Session {
    sandbox: Sandbox,
    cells: u32,
}

/// The result of a cell.
struct Ran {
    output: String,
    failed: bool,
}

impl Session {
    async fn begin(sandbox: &Sandbox) -> sandboxd_client::Result<Self> {
        sandbox.execute(INTERPRETER).await?;
        Ok(Self { sandbox: sandbox.clone(), cells: 0 })
    }

    async fn run(&mut self, code: &str) -> sandboxd_client::Result<Ran> {
        self.cells += 1;
        let cell = format!("cell-{}", self.cells);
        self.sandbox.files().write(format!("/tmp/session/{cell}"), format!("{code}\n")).await?;
        let feed = format!(
            "cd /tmp/session; echo {cell} > wanted; read -r code < ended; cat {cell}.out; exit $code"
        );
        let result = self.sandbox.execute(feed).await?;
        Ok(Ran { output: result.stdout, failed: result.exit_code != Some(0) })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::from_env()?;
    let image = std::env::var("IMAGE").unwrap_or_else(|_| "ubuntu:24.04".to_owned());
    let sandbox = client.create(image).await?.terminate_on_drop();
    let mut session = Session::begin(&sandbox).await?;
    let cells = [
        "x=6",
        "y=$((x * 7))",
        r#"echo "the answer is $y""#,
        "double() { echo $(($1 * 2)); }",
        "double $y",
        "no_such_command",
        r#"echo "still $y""#,
    ];
    for code in cells {
        println!("[{}] {code}", session.cells + 1);
        if session.cells == 2 {
            // The user is away for a while. The next cell resumes the sandbox.
            sandbox.pause().await?;
        }
        let ran = session.run(code).await?;
        if ran.failed {
            let message = ran.output.rsplit("line 1: ").next().unwrap_or_default();
            println!("error: {}", message.trim());
        } else {
            print!("{}", ran.output);
        }
    }
    sandbox.terminate().await?;
    Ok(())
}
