//! Attempts to leave a sandbox, one by one, with each isolation. All of them fail. docs/escape-attempts.md lists them.
//!
//! The other suites attack the parts that containers consist of, and gVisor's; these attempts do not depend on either.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "attempts/table.rs"]
mod table;

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use api::Isolation;
use e2e::{Rig, RigOptions, with_rig};
use table::{ATTEMPTS, PRELUDE};

/// A secret in a file, a file that must not appear, and services, all on the host.
struct Host {
    dir: std::path::PathBuf,
    tcp: TcpListener,
    _unix: UnixListener,
    _abstract: UnixListener,
}

const ALIVE_TIMEOUT: Duration = Duration::from_secs(60);
const SECRET: &str = "the-host-keeps-this";

impl Host {
    fn new(rig: &Rig) -> Self {
        use std::os::linux::net::SocketAddrExt;
        let dir = rig.data.canonicalize().unwrap();
        fs::write(dir.join("secret"), SECRET).unwrap();
        let name =
            std::os::unix::net::SocketAddr::from_abstract_name(format!("{}-abstract", rig.name)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self {
            tcp: listener,
            _unix: UnixListener::bind(dir.join("socket")).unwrap(),
            _abstract: UnixListener::bind_addr(&name).unwrap(),
            dir,
        }
    }

    /// The start of every attempt: what an attacker who knows the host would know.
    fn knowledge(&self, rig: &Rig, neighbour: &str) -> String {
        let pid = std::process::id();
        let port = self.tcp.local_addr().unwrap().port();
        format!(
            "HOST={} HOST_PID={pid} HOST_PORT={port} ABSTRACT={}-abstract NEIGHBOUR={neighbour} RUN={} DATA={}\n",
            self.dir.display(),
            rig.name,
            rig.run.display(),
            rig.data.display(),
        )
    }

    fn is_untouched(&self) -> bool {
        let names: Vec<_> =
            fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        fs::read_to_string(self.dir.join("secret")).unwrap() == SECRET
            && !names.iter().any(|name| name.to_string_lossy().contains("escaped"))
            && self.tcp.accept().is_err()
    }
}

/// What no sandbox may change, as text.
fn host_settings() -> String {
    let names = [
        "kernel/core_pattern",
        "kernel/modprobe",
        "kernel/hostname",
        "kernel/domainname",
        "kernel/sysrq",
        "vm/swappiness",
    ];
    let read = |name: &&str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    names.iter().map(read).collect::<Vec<_>>().join(";")
}

async fn all_fail(isolation: Isolation) {
    let options = RigOptions { isolation, ..RigOptions::default() };
    with_rig(options, async |rig: &Rig| {
        let (id, neighbour) = (rig.create().await.unwrap(), rig.create().await.unwrap());
        rig.output(&neighbour, "echo unharmed > /workspace/kept; sleep 9999 >/dev/null 2>&1 &").await.unwrap();
        let host = Host::new(rig);
        let (settings, knowledge) = (host_settings(), host.knowledge(rig, neighbour.as_str()));
        // What the attempts are made of works, and success is noticed.
        for control in ["call 39", "node p", "[ $NEIGHBOUR ]"] {
            let script = format!("{PRELUDE}\nexport {knowledge}\n{control} && echo ESCAPED");
            assert_eq!(rig.run_with_stdin(&id, "bash -s", &script).await.unwrap().stdout, "ESCAPED\n", "{control}");
        }
        let mut succeeded = Vec::new();
        for attempt in ATTEMPTS {
            let script = format!("{PRELUDE}\nexec 2>&1; export {knowledge}\n{}", attempt.script);
            let result = rig.run_with_stdin(&id, "bash -s", &script).await.unwrap();
            // An attempt says so if it succeeded; the host's secret says it too.
            let has_escaped = result.stdout.contains("ESCAPED") || result.stdout.contains(SECRET);
            if has_escaped || !host.is_untouched() || host_settings() != settings {
                succeeded.push(format!("{}: {}", attempt.name, result.stdout));
            }
        }
        assert_eq!(succeeded, Vec::<String>::new());
        // Under gVisor, processes that have just ended count against the limit of processes for a moment.
        let begun = Instant::now();
        while rig.output(&id, "echo alive").await.ok().as_deref() != Some("alive\n") {
            assert!(begun.elapsed() < ALIVE_TIMEOUT, "the sandbox runs no commands any more");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let kept = rig
            .output(
                &neighbour,
                "cat /workspace/kept; cat /proc/[0-9]*/comm | grep -c sleep; grep changed /etc/passwd /usr/bin/changed*; true",
            )
            .await
            .unwrap();
        assert_eq!(kept, "unharmed\n1\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_fail_in_a_container() {
    all_fail(Isolation::Container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_fail_under_gvisor() {
    all_fail(Isolation::Gvisor).await;
}

#[test]
fn all_are_listed_in_the_docs() {
    assert!(ATTEMPTS.len() >= 60, "{}", ATTEMPTS.len());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/escape-attempts.md");
    let listed = fs::read_to_string(path).unwrap();
    let listed: Vec<&str> = listed.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    let names: Vec<&str> = ATTEMPTS.iter().map(|attempt| attempt.name).collect();
    assert_eq!(listed, names);
}
