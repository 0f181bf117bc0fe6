//! Attempts to escape from a sandbox as its root. The tests check refusals in the sandbox and the state of the host afterwards.
//!
//! The scripts are in Perl, which every Debian root has; its `syscall` makes any system call with any arguments.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod calls;
mod files;
mod kernel_memory;
mod leaks;
mod machine;
mod neighbours;
mod network;
mod privileges;

use e2e::{Rig, RigOptions, with_rig};

/// Runs a test with one sandbox.
async fn in_sandbox(test: impl AsyncFnOnce(&Rig, &api::SandboxId)) {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        test(rig, &id).await;
        // The sandbox must still work after every attempt.
        assert_eq!(rig.output(&id, "echo still here").await.unwrap(), "still here\n");
    })
    .await;
}

/// The output of a script, one line for each violation.
async fn findings(rig: &Rig, id: &api::SandboxId, script: &str) -> Vec<String> {
    rig.perl(id, script).await.unwrap().lines().map(str::to_owned).collect()
}
