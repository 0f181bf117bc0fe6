//! The programs of the cookbook, as their readers run them. Hosts of the internet are simulated. `e2b_program.py` is run by
//! `tests/e2b/readme.rs`, where the packages of E2B are.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use e2e::code_image;
use e2e::internet::{self, Internet, RESOLVER};
use e2e::service::{Service, ServiceOptions, sample};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::skip::skipped;
use crate::{document, text, workspace};

const TIMEOUT: Duration = Duration::from_secs(240);
const E2B_TEST: &str = include_str!("../e2b/readme.rs");

/// A program of the cookbook with the settings of a service. `None` if its interpreter is not installed.
async fn program(service: &Service, name: &str) -> Option<Command> {
    let file = workspace().join("docs/cookbook").join(name);
    let interpreter = match file.extension().and_then(|extension| extension.to_str()) {
        Some("sh") => "bash".into(),
        _ => workspace().join("target/venv-sdk/bin/python"),
    };
    if interpreter.is_absolute() && !interpreter.exists() {
        skipped("cookbook", "target/venv-sdk is missing; './dev test' installs it");
        return None;
    }
    let key = service.account().await.unwrap().key().to_owned();
    // starts: target/venv-sdk/bin/python, bash, sbx
    let mut command = Command::new(interpreter);
    command
        .arg(file)
        .env(
            "PATH",
            format!("{}:{}", workspace().join("target/bin").display(), std::env::var("PATH").unwrap()),
        )
        .env("PYTHONPATH", workspace().join("sdk/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SANDBOXD_URL", format!("https://{}", service.address))
        .env("SANDBOXD_API_KEY", key)
        .env("SANDBOXD_CERTIFICATE", service.certificate_file().unwrap())
        .env("XDG_CONFIG_HOME", &service.layout.data)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    Some(command)
}

/// What a program prints on standard output. Fails with all of its output if the program fails.
async fn output_of(mut command: Command) -> String {
    let shown = format!("{:?}", command.as_std());
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{shown} did not end in time")).unwrap();
    assert!(output.status.success(), "{shown}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The image with Python and clients of the network.
fn with_python(options: ServiceOptions) -> ServiceOptions {
    options.image(internet::image::IMAGE, internet::image::SOURCE)
}

async fn service_with_python() -> Service {
    tokio::task::spawn_blocking(internet::image::build).await.unwrap().unwrap();
    Service::start(&with_python(ServiceOptions::default())).await.unwrap()
}

/// Those of all accounts: each program has one of its own.
async fn living_sandboxes(service: &Service) -> f64 {
    sample(&service.read_metrics().await.unwrap(), "sandboxd_sandboxes", &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fork_that_passes_most_tests_is_kept() {
    let service = service_with_python().await;
    let Some(mut command) = program(&service, "best_of_forks.py").await else { return };
    command.env("IMAGE", internet::image::IMAGE);
    let output = output_of(command).await;
    let expected =
        "both: 3 of 3\nmiddle: 2 of 3\nfirst: 1 of 3\nendless: 0 of 3\nkept both:\ndef median(values):\n";
    assert!(output.starts_with(expected), "{output}");
    assert_eq!(living_sandboxes(&service).await, 0.0);
}

/// The job continues while the daemon is killed and started again, and no line of its output is lost or repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_survives_a_restart_of_the_daemon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let Some(mut command) = program(&service, "long_job.py").await else { return };
    let mut child = command.env("STEPS", "8").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    while let Some(line) = tokio::time::timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap() {
        if line == "step 2" {
            service.kill().unwrap();
            service.start_process().await.unwrap();
        }
        seen.push(line);
    }
    assert!(child.wait().await.unwrap().success());
    let expected: Vec<String> = (1..=8).map(|step| format!("step {step}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(living_sandboxes(&service).await, 0.0);
}

/// The program is killed, and started again with what it has printed. The job is followed to its end, and its sandbox is terminated.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_survives_its_program() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let Some(mut command) = program(&service, "long_job.py").await else { return };
    let mut child = command.env("STEPS", "5").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let ids = tokio::time::timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().unwrap();
    let at = tokio::time::timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap().unwrap();
    child.kill().await.unwrap();
    assert_eq!(living_sandboxes(&service).await, 1.0);
    let mut again = program(&service, "long_job.py").await.unwrap();
    let key = command.as_std().get_envs().find(|(name, _)| *name == "SANDBOXD_API_KEY").unwrap().1.unwrap();
    again.env("SANDBOXD_API_KEY", key);
    again.args(ids.split(' ')).arg(at.strip_prefix("at ").unwrap());
    assert_eq!(output_of(again).await, "step 2\nstep 3\nstep 4\nstep 5\n");
    assert_eq!(living_sandboxes(&service).await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_code_interpreter_draws_a_figure() {
    tokio::task::spawn_blocking(code_image::build).await.unwrap().unwrap();
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let Some(mut command) = program(&service, "plot.py").await else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plot.png");
    command.arg(&file);
    assert_eq!(output_of(command).await, format!("visitors: 690\nsaved {}\n", file.display()));
    assert!(std::fs::read(&file).unwrap().starts_with(b"\x89PNG\r\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_that_was_moved_from_e2b_works() {
    let service = service_with_python().await;
    let Some(mut command) = program(&service, "e2b_moved.py").await else { return };
    command.env("IMAGE", internet::image::IMAGE);
    assert_eq!(output_of(command).await, "cheapest: pear,3\ncurrency: EUR\nfiles: ['prices.csv']\n");
}

/// The settings of a configuration file, which has one setting on a line.
fn configured(mut options: ServiceOptions, toml: &str) -> ServiceOptions {
    let mut table: &'static str = "";
    for line in toml.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name.to_owned().leak();
        } else {
            let (key, value) = line.split_once(" = ").unwrap_or_else(|| panic!("{line:?} is no setting"));
            options = options.with(table, key, value);
        }
    }
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_fifty_starts_within_the_limits_of_its_configuration() {
    let options = ServiceOptions::default().default_rates().with("capacity", "overcommit_disk", "100");
    let service = Service::start(&configured(options, &document("docs/cookbook/fleet.toml"))).await.unwrap();
    let Some(command) = program(&service, "fleet.py").await else { return };
    let output = output_of(command).await;
    let expected = "creates per minute: 120\n50 sandboxes, sum of the squares 40425\n";
    assert!(output.starts_with(expected), "{output}");
    assert_eq!(living_sandboxes(&service).await, 0.0);
}

/// A service on a host with a simulated internet around it.
struct Online {
    // Dropped before the host.
    service: Service,
    internet: Internet,
}

/// Runs a test on a thread of its own, because the thread moves to the namespaces of that host.
fn online(test: impl AsyncFnOnce(Online) + Send + 'static) {
    let run = move || {
        internet::image::build().unwrap();
        let internet = Internet::new().unwrap();
        internet.enter().unwrap();
        internet.web().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = with_python(ServiceOptions::default());
            let options = options.with("egress", "resolver", &format!("\"{RESOLVER}\""));
            let service = Service::start(&options).await.unwrap();
            test(Online { service, internet }).await;
        });
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn an_agent_installs_packages_from_one_index_and_reaches_nothing_else() {
    online(async |net: Online| {
        let Some(mut command) = program(&net.service, "pip_allowlist.py").await else { return };
        let (index, files) = (net.internet.site("packages").unwrap(), net.internet.site("files").unwrap());
        command
            .env("IMAGE", internet::image::IMAGE)
            .env("INDEX_URL", format!("https://{}/simple/", index.name))
            .env("FILE_HOSTS", files.name)
            .env("PACKAGE", "tiny-package")
            .env("CERTIFICATE", net.internet.authority());
        let expected = "installed: tiny-package==1.0\nanother host: refused\nrecorded: attacker.example\n";
        assert_eq!(output_of(command).await, expected);
    });
}

#[test]
fn programs_in_sandboxes_trust_the_authority_of_a_company() {
    online(async |net: Online| {
        let Some(mut command) = program(&net.service, "corporate_ca.sh").await else { return };
        let url = format!("https://{}/hello", net.internet.site("intranet").unwrap().name);
        command.env("IMAGE", internet::image::IMAGE).arg(net.internet.authority()).arg(&url);
        let output = output_of(command).await;
        assert!(output.starts_with("hello host=intranet.web.example "), "{output}");
        // Without the template the same request fails.
        let body = serde_json::json!({ "image": internet::image::IMAGE });
        let client = net.service.account().await.unwrap();
        let created = client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap();
        let path = format!("/v1/sandboxes/{}/execute", created["id"].as_str().unwrap());
        let command = serde_json::json!({ "command": format!("curl -sS {url}") });
        let result = client.post(&path, &command).await.unwrap().is(200).unwrap();
        assert_ne!(result["exitCode"], 0, "{result}");
    });
}

/// A test runs every program, and the index of the cookbook names every file.
#[test]
fn every_program_of_the_cookbook_is_in_its_index_and_has_a_test() {
    let index = document("docs/cookbook/README.md");
    let mut programs = 0;
    for entry in std::fs::read_dir(workspace().join("docs/cookbook")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "README.md" {
            continue;
        }
        assert!(index.contains(&format!("]({name})")), "the index does not name {name}");
        let tests = [include_str!("cookbook.rs"), E2B_TEST];
        assert!(tests.iter().any(|test| test.contains(&name)), "no test runs {name}");
        programs += usize::from(Path::new(&name).extension().is_some_and(|kind| kind != "toml"));
    }
    assert!(programs >= 8, "{programs}");
}
