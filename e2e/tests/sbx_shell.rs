//! `sbx shell` in a real terminal, provided by tmux, with a full-screen editor.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use serde_json::json;
use skip::skipped;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Provides an editor for an image that has none.
const BUSYBOX: &str = "/bin/busybox";

/// A window of a separate tmux server, with a shell.
struct Window {
    socket: PathBuf,
}

impl Window {
    fn open(dir: &Path, environment: &[(&str, String)]) -> Self {
        let window = Self { socket: dir.join("tmux") };
        let mut command = window.command();
        for (name, value) in environment {
            command.env(name, value);
        }
        let status = command
            .args(["-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "24", "bash --norc"])
            .status();
        assert!(status.unwrap().success());
        window
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.env("TERM", "xterm-256color").env_remove("TMUX").arg("-S").arg(&self.socket);
        command
    }

    fn tmux(&self, words: &[&str]) -> Output {
        let output = self.command().args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Sends keys by their names.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    async fn wait_for(&self, wanted: &str) {
        let begin = Instant::now();
        while !self.screen().contains(wanted) {
            assert!(begin.elapsed() < TIMEOUT, "no {wanted:?} on the screen:\n{}", self.screen());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Also ends the shell and its processes.
        let _ = self.command().arg("kill-server").output();
    }
}

async fn sandbox(client: &Client) -> String {
    let body = json!({ "image": Service::image(), "resources": { "memoryMb": 2048, "diskMb": 5120 }, "timeoutMs": 3_600_000 });
    let sandbox = client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap();
    let id = sandbox["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sandboxes/{id}/files?path=/usr/bin/busybox&mode=755");
    let busybox = std::fs::read(BUSYBOX).unwrap();
    client
        .call(Method::PUT, &path)
        .body("application/octet-stream", busybox)
        .send()
        .await
        .unwrap()
        .is(200)
        .unwrap();
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_supports_editors_and_resizing_and_survives_the_daemon() {
    const NAME: &str = "a_shell_supports_editors_and_resizing_and_survives_the_daemon";
    if Command::new("tmux").arg("-V").output().is_err() || !Path::new(BUSYBOX).exists() {
        return skipped(NAME, "tmux and busybox are needed, which './dev setup' installs");
    }
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = sandbox(&client).await;
    let dir = tempfile::tempdir().unwrap();
    let key = client.key().to_owned();
    let window = Window::open(
        dir.path(),
        &[
            ("SANDBOXD_URL", format!("https://{}", service.address)),
            ("SANDBOXD_API_KEY", key),
            ("SANDBOXD_CERTIFICATE", service.certificate_file().unwrap().display().to_string()),
            ("HOME", dir.path().display().to_string()),
        ],
    );
    let program = e2e::sbx().unwrap();
    window.line("PS1='out'':side> '");
    window.wait_for("out:side>").await;
    window.line(&format!("clear; {} shell {id}", program.display()));
    window.line("PS1='in'':side> '; clear");
    window.wait_for("in:side>").await;
    window.line("stty size");
    window.wait_for("24 90").await;
    // A full-screen editor draws, reads keys, and restores the screen.
    window.line("busybox vi note");
    window.wait_for("~\n~\n").await;
    window.press(&["i"]);
    window.wait_for("I note").await;
    window.tmux(&["send-keys", "-l", "typed in vi"]);
    window.wait_for("typed in vi").await;
    window.press(&["Escape"]);
    // The editor accepts an escape only if no other key follows immediately, because it might begin a sequence.
    window.wait_for("- note").await;
    window.line(":wq");
    window.wait_for("in:side>").await;
    window.line("clear; sed s/typed/read/ note");
    window.wait_for("read in vi").await;
    // The terminal's size follows the window.
    window.tmux(&["resize-window", "-x", "70", "-y", "20"]);
    window.line("clear; sleep 0.5; stty size");
    window.wait_for("20 70").await;
    // Ctrl-C is sent to the program in the sandbox.
    window.line("clear; echo 'sle''eping'; sleep 600; echo 'inter''rupted'");
    window.wait_for("sleeping").await;
    window.press(&["C-c"]);
    window.line("echo 'goes'' on'");
    window.wait_for("goes on").await;
    // The shell survives a kill of the daemon.
    window.line("clear; kept=yes; echo 'cle''ared'");
    window.wait_for("cleared").await;
    service.kill().unwrap();
    window.wait_for("lost").await;
    // Input typed while disconnected is sent after the reconnect.
    window.line("echo blind: $kept");
    service.start_process().await.unwrap();
    window.wait_for("reconnected").await;
    window.wait_for("blind: yes").await;
    window.line("echo kept: $kept");
    window.wait_for("kept: yes").await;
    // At the end the local terminal is restored and the exit code is passed on.
    window.line("exit 7");
    window.wait_for("out:side>").await;
    window.line("echo code $?; stty -a | grep -o ' icanon'");
    window.wait_for("code 7\n icanon").await;
}
