//! Isolation between two sandboxes of one account, and from the host: processes, files, namespaces and user ids.

use std::collections::BTreeSet;
use std::path::Path;

use e2e::{RigOptions, command, with_rig};

use crate::in_sandbox;

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_share_nothing() {
    with_rig(RigOptions::default(), async |rig| {
        let (left, right) = (rig.create().await.unwrap(), rig.create().await.unwrap());
        rig.output(&left, "echo mine > /workspace/f; echo mine > /tmp/f; echo mine > /dev/shm/f; sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        // A System V segment and a POSIX queue of known names.
        let shared = |flags: &str| format!("print syscall({}, 4711, 4096, {flags}) >= 0 ? 'there' : 'none'", libc::SYS_shmget);
        assert_eq!(rig.perl(&left, &shared("01666")).await.unwrap(), "there");
        assert_eq!(rig.perl(&left, &shared("0")).await.unwrap(), "there");
        assert_eq!(rig.perl(&right, &shared("0")).await.unwrap(), "none");
        rig.output(&left, "touch /dev/mqueue/q").await.unwrap();
        let seen = rig.output(&right, "ls /workspace /tmp /dev/shm /dev/mqueue; ps -e -o comm=").await.unwrap();
        assert!(!seen.contains("sleep") && !seen.contains('f') && !seen.contains("q\n"), "{seen}");

        let (ours, theirs) = (ids_of(rig, &left), ids_of(rig, &right));
        assert!(ours.is_disjoint(&theirs), "{ours:?} {theirs:?}");
        for id in ours.union(&theirs) {
            assert!(*id >= rig.uid_base, "an id of the host: {id}");
        }
        for kind in ["user", "pid", "net", "mnt", "ipc", "uts", "cgroup"] {
            let (ours, theirs) = (namespace(rig, &left, kind), namespace(rig, &right, kind));
            let hosts = std::fs::read_link(Path::new("/proc/self/ns").join(kind)).unwrap();
            assert!(ours != theirs && ours != hosts && theirs != hosts, "{kind}: {ours:?} {theirs:?} {hosts:?}");
        }
    })
    .await;
}

/// The user and group ids on the host of all processes of a sandbox: real, effective, saved and of the file system.
fn ids_of(rig: &e2e::Rig, id: &api::SandboxId) -> BTreeSet<u32> {
    let pids = rig.host_pids(id).unwrap();
    assert!(!pids.is_empty());
    let mut ids = BTreeSet::new();
    for pid in pids {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let lines = status.lines().filter(|line| line.starts_with("Uid:") || line.starts_with("Gid:"));
        ids.extend(
            lines.flat_map(|line| line.split_whitespace().skip(1)).map(|id| id.parse::<u32>().unwrap()),
        );
    }
    ids
}

fn namespace(rig: &e2e::Rig, id: &api::SandboxId, kind: &str) -> std::path::PathBuf {
    let pid = rig.host_pids(id).unwrap()[0];
    std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn host_processes_are_not_reachable() {
    in_sandbox(async |rig, id| {
        // A sandbox sees only its own processes.
        let seen = rig.output(id, "ls -d /proc/[0-9]*").await.unwrap();
        assert!(seen.lines().count() <= 4, "{seen}");
        // A process of the host, addressed by its process id on the host.
        let mut target = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = target.id();
        let result = rig
            .run(
                id,
                &format!(
                    "for n in 0 1 9 15 19; do kill -$n {pid}; done; cat /proc/{pid}/environ; kill -9 -1"
                ),
            )
            .await
            .unwrap();
        let alive = target.try_wait().unwrap().is_none();
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        target.kill().unwrap();
        target.wait().unwrap();
        assert!(alive, "killed from the sandbox: {result:?}");
        assert!(state.contains("(sleep) S"), "stopped from the sandbox: {state}");
        assert_eq!(result.stdout, "");
    })
    .await;
}

/// Each command has its own mark, its cgroup namespace, which it cannot remove.
#[tokio::test(flavor = "multi_thread")]
async fn each_command_has_its_own_mark() {
    in_sandbox(async |rig, id| {
        rig.output(id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        rig.output(id, "sleep 1000 >/dev/null 2>&1 &").await.unwrap();
        let marks = rig.host_pids(id).unwrap().into_iter().map(|pid| std::fs::read_link(format!("/proc/{pid}/ns/cgroup")).unwrap());
        let marks: BTreeSet<_> = marks.collect();
        assert_eq!(marks.len(), 3, "expected different marks for the agent and two commands: {marks:?}");
        // A process that leaves its environment, parent, session and process group.
        let escape = "perl -e 'use POSIX; for (1..3) { exit if fork; setsid() } %ENV = (); \
            exec {q(/usr/bin/perl)} (q(hidden), q(-e), q($0 = q(hidden); sleep 1000))' >/dev/null 2>&1 </dev/null & sleep 60";
        let request = api::ExecuteRequest { timeout_ms: 500, ..command(escape) };
        let result = rig.engine.sandbox("test", id).execute(request).await.unwrap().collect(10_000).await.unwrap();
        assert_eq!((result.exit_code, result.signal.as_deref()), (None, Some("SIGKILL")), "{result:?}");
        assert_eq!(rig.host_pids(id).unwrap().len(), 3, "a process escaped");
    })
    .await;
}
