//! The programs of the README and of the cookbook, with the variables that `sandboxd serve --e2b` prints.

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

/// The program of the cookbook runs unchanged, and prints what its moved version prints (`tests/docs/cookbook.rs`).
#[tokio::test(flavor = "multi_thread")]
async fn the_program_of_the_cookbook_works() {
    let Some(releases) = Language::Python.packages() else { return };
    let file = workspace().join("docs/cookbook/e2b_program.py");
    let expected = "cheapest: pear,3\ncurrency: EUR\nfiles: ['prices.csv']\n";
    let program = format!(
        "import contextlib, io, os, runpy\nshown = io.StringIO()\n\
         with contextlib.redirect_stdout(shown):\n    runpy.run_path({file:?}, run_name='__main__')\n\
         assert shown.getvalue() == {expected:?}, shown.getvalue()\nprint('ok', flush=True)\nos._exit(0)\n"
    );
    let e2b = E2bService::start().await;
    // starts: target/venv/bin/python
    let mut command = Command::new(workspace().join("target/venv/bin/python"));
    command.env("PYTHONPATH", &releases[0]).env("PYTHONDONTWRITEBYTECODE", "1").args(["-c", &program]);
    e2b.passes_with(&e2b.key, Address::OnlyUrls, command).await;
}
