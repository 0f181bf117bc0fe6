//! `sandboxd config check`, and the same errors at a start.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::{text, workspace};

/// The last line of a check that could not check everything.
const MORE: &str = "correct these errors and check again: programs, files, certificates, images and accounts are checked then";

/// A directory with a configuration file.
struct Configuration(TempDir);

impl Configuration {
    fn new(content: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), content).unwrap();
        Self(dir)
    }

    /// Runs in the root directory, without settings of the environment.
    fn sandboxd(&self, arguments: &[&str]) -> Output {
        self.sandboxd_with(&[], arguments)
    }

    /// As `sandboxd`, with these variables.
    fn sandboxd_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
        // starts: sandboxd
        let mut command = Command::new(workspace().join("target/bin/sandboxd"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).current_dir("/");
        command.envs(variables.iter().copied());
        command.args(arguments).arg("--config").arg(self.file()).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("config.toml")
    }

    /// The exit code of a check, and its lines without the path of the file and without a last line that announces more checks.
    fn check(&self) -> (Option<i32>, Vec<String>) {
        let output = self.sandboxd(&["config", "check"]);
        assert_eq!(text(&output.stderr), "");
        let path = self.file().display().to_string();
        let lines = text(&output.stdout);
        let lines = lines.lines().filter(|line| *line != MORE);
        let lines = lines.map(|line| line.strip_prefix(&path).unwrap_or_else(|| panic!("{line}")));
        (output.status.code(), lines.map(str::to_owned).collect())
    }
}

#[test]
fn a_valid_configuration_is_confirmed() {
    for content in ["", "[limits]\nread_per_minute = 0\n[quotas.accounts.\"acme\"]\nsandboxes = 5\n"] {
        let checked = Configuration::new(content).check();
        assert_eq!(checked, (Some(0), vec![" is valid".to_owned()]), "{content}");
    }
}

#[test]
fn every_error_of_a_configuration_is_printed() {
    let content = r#"data_dir = 5
[limits]
read_per_minute = -1
pids_max = 100
[network]
[http]
lisen = "0.0.0.0:8443"
tls = true
"#;
    let (code, lines) = Configuration::new(content).check();
    assert_eq!(code, Some(1));
    let expected = [
        ":1: data_dir is 5; it must be text in quotes (path)",
        ":3: limits.read_per_minute is -1; it must be a whole number (count, 0 to 1000000)",
        ":4: unknown key 'limits.pids_max'; did you mean the one in [runtime]?",
        ":5: unknown key 'network'; did you mean the one in [egress]?",
        ":7: unknown key 'http.lisen'; did you mean 'http.listen'?",
        ":8: http.tls is true; it must be text in quotes (\"self-signed\", \"files\" or \"off\")",
    ];
    assert_eq!(lines, expected);
    // Ranges of a table are checked when its keys and types are right.
    let (_, lines) = Configuration::new("[http]\nlisen = 1\n[log]\nlevel = \"loud=very\"\n").check();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let (code, lines) =
        Configuration::new("[http]\nhandshake_seconds = 0\n[log]\nlevel = \"loud=very\"\n").check();
    assert_eq!(code, Some(1));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], ":2: http.handshake_seconds is 0; it must be 1 to 300");
    assert!(lines[1].starts_with(":4: log.level is 'loud=very'; it must be error, warn"), "{}", lines[1]);
}

#[test]
fn a_check_says_that_more_checks_follow() {
    let last = |content: &str| {
        let output = text(&Configuration::new(content).sandboxd(&["config", "check"]).stdout);
        output.lines().last().unwrap().to_owned()
    };
    assert_eq!(last("[http]\nlisen = 1\n"), MORE);
    assert_eq!(last("[http]\nhandshake_seconds = 0\n"), MORE);
    assert_ne!(last("[isolation.container]\nprogram = \"no-such-runtime\"\n"), MORE);
}

#[test]
fn a_start_reports_what_a_check_reports() {
    let configuration = Configuration::new("[limits]\nread_per_minute = -1\ncreate_per_minute = \"ten\"\n");
    let output = configuration.sandboxd(&["serve"]);
    assert_eq!(output.status.code(), Some(125));
    let file = configuration.file();
    let (_, lines) = configuration.check();
    let lines: Vec<String> = lines.iter().map(|line| format!("{}{line}", file.display())).collect();
    let expected = format!("sandboxd: the configuration has 2 errors:\n{}\n", lines.join("\n"));
    assert_eq!(text(&output.stderr), expected);
}

/// A wrong variable is an error of a check and of a start, and is named. The start changes nothing before.
#[test]
fn variables_are_checked_as_the_file_is() {
    let configuration = Configuration::new("data_dir = \"data\"\nrun_dir = \"run\"\n");
    for (variable, value, reason) in [
        ("SANDBOXD_LOG", "verbose", "it must be error, warn, info, debug or trace"),
        ("SANDBOXD_LISTEN", "bogus", "it must be an address and a port"),
        ("SANDBOXD_REDIRECT_LISTEN", "bogus", "it must be an address and a port"),
        ("SANDBOXD_METRICS_LISTEN", "bogus", "it must be an address and a port"),
    ] {
        let variables = [(variable, value)];
        let check = configuration.sandboxd_with(&variables, &["config", "check"]);
        let start = configuration.sandboxd_with(&variables, &["serve"]);
        assert_eq!((check.status.code(), start.status.code()), (Some(1), Some(125)), "{variable}");
        for output in [text(&check.stdout), text(&start.stderr)] {
            assert!(
                [variable, value, reason].iter().all(|part| output.contains(part)),
                "{variable}: {output}"
            );
            assert_eq!(output.lines().filter(|line| *line != MORE).count(), 1, "{output}");
        }
    }
    assert!(!configuration.0.path().join("data").exists());
    let checked = configuration.sandboxd_with(&[("SANDBOXD_LOG", "info,enigne=debug")], &["config", "check"]);
    let lines = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{lines}");
    assert!(lines.starts_with("warning: SANDBOXD_LOG is 'info,enigne=debug'"), "{lines}");
}

/// Files of variables have lines such as `SANDBOXD_CONFIG=`.
#[test]
fn an_empty_variable_counts_as_not_set() {
    let configuration = Configuration::new("");
    let names = [
        "SANDBOXD_CONFIG",
        "SANDBOXD_DATA_DIR",
        "SANDBOXD_RUN_DIR",
        "SANDBOXD_LISTEN",
        "SANDBOXD_REDIRECT_LISTEN",
        "SANDBOXD_METRICS_LISTEN",
        "SANDBOXD_LOG",
    ];
    let output = configuration.sandboxd_with(&names.map(|name| (name, "")), &["config", "check"]);
    let expected = format!("{} is valid\n", configuration.file().display());
    assert_eq!((text(&output.stdout), text(&output.stderr)), (expected, String::new()));
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let missing = Configuration::new("");
    std::fs::remove_file(missing.file()).unwrap();
    let (code, lines) = missing.check();
    assert_eq!((code, lines.len()), (Some(1), 1));
    assert!(lines[0].starts_with(": cannot be read: No such file"), "{}", lines[0]);

    let tls =
        Configuration::new("[http]\ntls = \"files\"\ntls_cert = \"cert.pem\"\ntls_key = \"tls/key.pem\"\n");
    std::fs::write(tls.0.path().join("cert.pem"), "").unwrap();
    let (code, lines) = tls.check();
    let key = tls.0.path().join("tls/key.pem");
    assert_eq!((code, lines.len()), (Some(1), 1));
    let expected = format!(":4: http.tls_key is '{}', which cannot be read: No such file", key.display());
    assert!(lines[0].starts_with(&expected), "{}", lines[0]);
}

#[test]
fn files_that_a_start_refuses_are_errors() {
    let content = "[http]\ntls = \"files\"\ntls_cert = \"cert.pem\"\ntls_key = \"cert.pem\"\n[images]\n\"mine\" = [\"ubuntu\"]\n";
    let tls = Configuration::new(content);
    let file = tls.0.path().join("cert.pem");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (code, lines) = tls.check();
    assert_eq!((code, lines.len()), (Some(1), 2), "{lines:?}");
    assert!(
        lines[0].starts_with(":3: http.tls_cert: ") && lines[0].contains("BEGIN CERTIFICATE"),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with(":6: images.\"mine\": image source 'ubuntu' is invalid"), "{}", lines[1]);
}

#[test]
fn a_start_refuses_what_a_check_refuses_beyond_single_values() {
    let content =
        "data_dir = \"data\"\nrun_dir = \"run\"\n[isolation.container]\nprogram = \"no-such-runtime\"\n";
    let configuration = Configuration::new(content);
    let (code, lines) = configuration.check();
    assert_eq!((code, lines.len()), (Some(1), 1), "{lines:?}");
    assert!(lines[0].starts_with(":4: isolation.container.program is 'no-such-runtime'"), "{}", lines[0]);
    let output = configuration.sandboxd(&["serve"]);
    assert_eq!(output.status.code(), Some(125));
    let expected = format!("sandboxd: {}{}\n", configuration.file().display(), lines[0]);
    assert_eq!(text(&output.stderr), expected);
    // Nothing was made before the refusal.
    assert!(!configuration.0.path().join("data").exists());
}

#[test]
fn a_warning_is_printed_and_does_not_stop_a_start() {
    let configuration = Configuration::new("[pool]\n\"ubunto:24.04\" = 2\n");
    let (code, lines) = configuration.check();
    assert_eq!((code, lines.len()), (Some(0), 2), "{lines:?}");
    let expected =
        ":2: warning: pool.\"ubunto:24.04\" names an image that is neither in the catalogue nor on this host";
    assert!(lines[0].starts_with(expected), "{}", lines[0]);
    assert_eq!(lines[1], " is valid");
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // starts: sandboxd
    let mut command = Command::new(workspace().join("target/bin/sandboxd"));
    command.args(["config", "reference"]).stdin(Stdio::null()).stdout(writer);
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn relative_paths_are_below_the_directory_of_the_file() {
    let configuration = Configuration::new("data_dir = \"state\"\nrun_dir = \"run\"\n");
    let output = configuration.sandboxd(&["key", "create", "--account", "a", "--scopes", "read"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(configuration.0.path().join("state").is_dir());
    assert!(!Path::new("/state").exists());
}
