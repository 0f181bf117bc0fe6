//! Tries to break out of a sandbox, from inside and as its root. Each test says what was refused and looks at the host after.
//!
//! Perl stands in for a compiler: every Debian root has it, and its `syscall` makes any call with any arguments.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod calls;
mod files;
mod leaks;
mod machine;
mod neighbours;
mod network;
mod privileges;

use e2e::{Rig, RigOptions, with_rig};

/// A test on one sandbox.
async fn in_sandbox(test: impl AsyncFnOnce(&Rig, &api::SandboxId)) {
    with_rig(RigOptions::default(), async |rig| {
        let id = rig.create().await.unwrap();
        test(rig, &id).await;
        // Whatever was tried, the sandbox still serves its owner.
        assert_eq!(rig.output(&id, "echo still here").await.unwrap(), "still here\n");
    })
    .await;
}

/// Lines of a script that tell what went wrong; a script prints nothing but these.
async fn findings(rig: &Rig, id: &api::SandboxId, script: &str) -> Vec<String> {
    rig.perl(id, script).await.unwrap().lines().map(str::to_owned).collect()
}
