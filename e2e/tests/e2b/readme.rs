//! The program of the README, with the variables that `sandboxd serve --e2b` prints.

use tokio::process::Command;

use crate::{Address, E2bService, Language, workspace};

#[tokio::test(flavor = "multi_thread")]
async fn the_program_of_the_readme_works() {
    let Some(releases) = Language::Python.packages() else { return };
    let text = std::fs::read_to_string(workspace().join("README.md")).unwrap();
    let (_, after) = text.split_once("```py\n").unwrap();
    let program = after.split_once("```").unwrap().0;
    let e2b = E2bService::start().await;
    // starts: target/venv/bin/python
    let mut command = Command::new(workspace().join("target/venv/bin/python"));
    command.env("PYTHONPATH", &releases[0]).env("PYTHONDONTWRITEBYTECODE", "1");
    // The interpreter's cleanup sometimes aborts in threads of e2b's transport.
    let program = format!("{program}\nprint('ok', flush=True)\nimport os\nos._exit(0)\n");
    command.args(["-c", &program]);
    e2b.passes_with(&e2b.key, Address::OnlyUrls, command).await;
}
