//! `sbx build` and `sbx template`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use e2e::service::Service;

use crate::{TestUser, code, interrupt, text};

fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    dir
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_becomes_an_image() {
    let user = TestUser::new().await;
    let dockerfile = format!(
        "FROM {}\nARG WHO=nobody\nCOPY . /app/\nRUN echo made by $WHO > /app/who; ls /app\n",
        Service::image()
    );
    let dir = project(&[
        ("Dockerfile", &dockerfile),
        (".dockerignore", "*.log\nsecret\n"),
        ("main.py", "print(1)"),
        ("debug.log", "x"),
        ("secret/key", "x"),
    ]);
    let path = dir.path().to_str().unwrap();
    let output = user.run(&["build", "-t", "web", "--build-arg", "WHO=me", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let id = text(&output.stdout).trim().to_owned();
    assert!(id.starts_with("tpl_"), "{id}");
    let log = text(&output.stderr);
    for line in ["[1/2] COPY . /app/", "  main.py", "-- template web:1 is ready"] {
        assert!(log.lines().any(|found| found == line), "{line}: {log}");
    }
    assert!(!log.contains("debug.log") && !log.contains("secret"), "{log}");
    // The sandboxes of its steps have ended, and no list shows them.
    assert_eq!(user.stdout(&["ls", "--all", "-q"]), "");
    assert_eq!(user.stdout(&["ls", "--state", "terminated", "-q"]), "");
    assert_eq!(user.stdout(&["run", "web", "--", "cat /app/who"]), "made by me\n");
    let again = user.run(&["build", "-t", "web", "--build-arg", "WHO=me", path]);
    assert!(text(&again.stderr).contains("[2/2] RUN echo made by $WHO > /app/who; ls /app (cached)"));
    let list = user.stdout(&["template", "list"]);
    assert!(list.contains(&id) && list.contains("web:2") && list.contains("ready"), "{list}");
    assert_eq!(user.json(&["--json", "template", "ls", "--name", "web"]).as_array().unwrap().len(), 2);
    let logs = user.run(&["template", "logs", &id]);
    assert!(logs.status.success() && text(&logs.stderr).contains("  main.py"));
    assert_eq!(user.stdout(&["run", "web:latest", "--", "cat /app/who"]), "made by me\n");
    assert_eq!(user.json(&["inspect", "web"])[0]["version"], 2);
    // A version is deleted by the name that the list shows.
    user.stdout(&["template", "rm", "web:1"]);
    assert_eq!(user.stdout(&["template", "list", "-q"]).trim(), text(&again.stdout).trim());
    let missing = user.run(&["template", "rm", "web:1"]);
    assert!(code(&missing) == 125 && text(&missing.stderr).contains("no template 'web:1'"));
    // A name without a template does not keep the others.
    let some = user.run(&["template", "rm", "none", "web"]);
    assert!(
        code(&some) == 125 && text(&some.stderr).contains("no template 'none'"),
        "{}",
        text(&some.stderr)
    );
    assert_eq!(user.stdout(&["template", "list", "-q"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dockerfile_from_standard_input_has_the_context() {
    let user = TestUser::new().await;
    let dir = project(&[("f1", "of the context")]);
    let path = dir.path().to_str().unwrap();
    let mut child = user
        .sbx()
        .args(["build", "-t", "piped:latest", "--build-arg", "SBX_NOT_SET", "-f", "-", path])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    write!(stdin, "FROM {}\nCOPY f1 /f1\n", Service::image()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(user.stdout(&["run", "piped", "--", "cat /f1"]), "of the context");
    for context in ["-", "https://example.com/app.git"] {
        let refused = user.run(&["build", "-t", "piped", context]);
        assert!(text(&refused.stderr).contains("'-f -'"), "{}", text(&refused.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_interrupts_end_a_build() {
    let user = TestUser::new().await;
    let dockerfile = format!("FROM {}\nRUN echo why; exit 3\n", Service::image());
    let dir = project(&[("docker/File", &dockerfile)]);
    let path = dir.path().to_str().unwrap();
    let failed = user.run(&["build", "-t", "bad", "-f", "docker/File", path]);
    assert_eq!((code(&failed), text(&failed.stdout).as_str()), (1, ""));
    let log = text(&failed.stderr);
    assert!(log.contains("  why") && log.contains("line 2: the command exited with code 3"), "{log}");
    let used = user.run(&["run", "bad", "--", "true"]);
    let why = text(&used.stderr);
    assert!(code(&used) == 125 && why.contains("'bad', a template without a finished build"), "{why}");
    assert!(why.contains("sbx template logs tpl_") && !why.contains("image allow"), "{why}");
    // A Dockerfile may be outside of the context, and its path starts at the current directory.
    let outside = project(&[("File", &format!("FROM {}\n", Service::image())), ("context/a", "")]);
    let mut build = user.sbx();
    build.current_dir(outside.path()).args(["build", "-q", "-t", "outside", "-f", "File", "context"]);
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let refused = user.run(&["build", "-t", "bad", path]);
    assert!(text(&refused.stderr).contains("no file 'Dockerfile'"), "{}", text(&refused.stderr));
    let mut child = user
        .sbx()
        .args(["build", "-t", "slow", "-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    write!(stdin, "FROM {}\nRUN echo begun; sleep 600\n", Service::image()).unwrap();
    drop(stdin);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "  begun"));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let states = user.json(&["--json", "template", "list", "--name", "slow"]);
    assert_eq!(states[0]["state"], "cancelled", "{states}");
    assert_eq!(user.live(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_is_built_with_several_names() {
    let user = TestUser::new().await;
    let image = Service::image();
    let stages = format!("FROM {image} AS base\nRUN echo base > /stage\nFROM base\nRUN echo last > /stage\n");
    let dir = project(&[("Dockerfile", &stages)]);
    let path = dir.path().to_str().unwrap();
    let built = user.stdout(&["build", "-q", "-t", "one", "-t", "two", "--target", "base", path]);
    assert_eq!(built.lines().count(), 2, "{built}");
    for name in ["one", "two"] {
        assert_eq!(user.stdout(&["run", name, "cat /stage"]), "base\n");
    }
    let refused = user.run(&["build", "-t", "one", "--target", "none", path]);
    assert!(code(&refused) == 125 && text(&refused.stderr).contains("base"), "{}", text(&refused.stderr));
    let failing = project(&[("Dockerfile", &format!("FROM {image}\nRUN false\n"))]);
    assert_eq!(code(&user.run(&["build", "-t", "bad", failing.path().to_str().unwrap()])), 1);
    assert_eq!(user.stdout(&["template", "rm", "--failed"]).lines().count(), 1);
    assert_eq!(user.stdout(&["template", "ls", "-q"]).lines().count(), 2);
    // The sandboxes of the steps are not among those of the user.
    assert!(!user.stdout(&["ls", "--all", "--wide"]).contains("template=tpl_"));
}
