//! Builds of the Dockerfiles of `crates/dockerfile/tests/corpus`: the files and the output of their commands are those that Docker
//! has made of them, which `./dev docker-corpus` records.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::service::{Client, with};
use serde_json::{Value, json};

use crate::templates::{TEMPLATES, body, build, create_from, finished, log};
use crate::{output, sandbox_path, text, user};

/// The recorded files begin with it.
const FILES: &str = "== ";
/// The tests among which the corpus is divided.
const PARTS: usize = 4;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/dockerfile/tests/corpus")
}

/// The build context, as a tar archive in base64.
fn context() -> String {
    let directory = tempfile::tempdir().unwrap();
    let made =
        Command::new("sh").arg(corpus().join("make-context.sh")).arg(directory.path()).status().unwrap();
    assert!(made.success());
    let mut archive = tar::Builder::new(Vec::new());
    archive.follow_symlinks(false);
    archive.append_dir_all(".", directory.path()).unwrap();
    STANDARD.encode(archive.into_inner().unwrap())
}

/// The Dockerfiles of a part, with what Docker has made of them.
fn recorded(part: usize) -> BTreeMap<String, (String, String)> {
    let entries = std::fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "dockerfile")).collect();
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let dockerfile = std::fs::read_to_string(path).unwrap();
        (name, (dockerfile, std::fs::read_to_string(path.with_extension("expected")).unwrap()))
    };
    files.iter().skip(part).step_by(PARTS).map(read).collect()
}

fn request(name: &str, dockerfile: &str, context: &str) -> Value {
    let arguments = dockerfile.lines().filter_map(|line| line.strip_prefix("#args "));
    let arguments: BTreeMap<&str, &str> =
        arguments.flat_map(str::split_whitespace).filter_map(|word| word.split_once('=')).collect();
    let mut request = with(body(name, ""), "context", json!(context));
    request["dockerfile"] = json!(dockerfile);
    request["buildArgs"] = json!(arguments);
    request
}

/// The files that a build has left; `None` if it fails.
async fn built(client: &Client, request: &Value, probe: &str) -> Option<String> {
    let accepted = client.post(TEMPLATES, request).await.unwrap();
    if accepted.status == 400 {
        return None;
    }
    let id = text(&accepted.is(201).unwrap()["id"]);
    let template = finished(client, &id).await;
    if template["state"] != "ready" {
        println!("{template} {:?}", log(client, &id).await);
        return None;
    }
    let sandbox = create_from(client, &id).await;
    let files = output(client, &sandbox, probe).await;
    client.delete(&sandbox_path(&sandbox)).await.unwrap().is(200).unwrap();
    Some(files)
}

async fn compare(part: usize) {
    let (_service, client) = user().await;
    build(&client, &body("base", "")).await;
    let (context, probe) = (context(), std::fs::read_to_string(corpus().join("probe")).unwrap());
    let recorded = recorded(part);
    assert!(recorded.len() >= 7);
    for (name, (dockerfile, expected)) in recorded {
        let request = request(&name, &dockerfile, &context);
        let built = built(&client, &request, &probe).await;
        let files = expected.find(FILES).map_or("", |start| &expected[start..]);
        let expected = (!expected.starts_with("fails\n")).then_some(files);
        assert_eq!(built.as_deref(), expected, "{name}");
    }
}

#[tokio::test]
async fn builds_make_the_files_that_docker_makes_1() {
    compare(0).await;
}

#[tokio::test]
async fn builds_make_the_files_that_docker_makes_2() {
    compare(1).await;
}

#[tokio::test]
async fn builds_make_the_files_that_docker_makes_3() {
    compare(2).await;
}

#[tokio::test]
async fn builds_make_the_files_that_docker_makes_4() {
    compare(3).await;
}
