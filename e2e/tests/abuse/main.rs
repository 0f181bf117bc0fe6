//! Uses up all there is inside. The sandbox suffers; its agent, its neighbours and this process do not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod exhaustion;
mod floods;
mod losses;

use std::time::{Duration, Instant};

use api::{ExecuteRequest, ExecutionResult, Resources, SandboxConfig, SandboxId};
use e2e::{Rig, RigOptions, command, config, with_rig};

/// A test on one small sandbox: what is small is soon full.
async fn in_sandbox(test: impl AsyncFnOnce(&Rig, &SandboxId)) {
    with_rig(RigOptions::default(), async |rig| {
        let id = small(rig).await;
        test(rig, &id).await;
    })
    .await;
}

/// One processor, 256 MB of memory, 64 MB of disk.
async fn small(rig: &Rig) -> SandboxId {
    let resources = Resources { cpu: 1, memory_mb: 256, disk_mb: 64 };
    let config = SandboxConfig { resources, ..config() };
    rig.engine.create("test", config, rig.template.clone(), None).await.unwrap().record.id.clone()
}

/// Runs a command that may take so long.
async fn run_for(rig: &Rig, id: &SandboxId, text: &str, timeout_ms: u64) -> ExecutionResult {
    let request = ExecuteRequest { timeout_ms, ..command(text) };
    rig.engine.sandbox("test", id).execute(request).await.unwrap().collect(1 << 20).await.unwrap()
}

/// That a command works, and what the agent of now is: a new one has another number or starting time.
async fn serves(rig: &Rig, id: &SandboxId) -> String {
    rig.output(id, "cut -d' ' -f22 /proc/1/stat").await.unwrap()
}

/// Looks until it is so; a test waits no longer than ten seconds.
async fn becomes(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a neighbour's commands took while something went on.
async fn neighbour_while<T>(
    rig: &Rig,
    id: &SandboxId,
    going_on: impl Future<Output = T>,
) -> (T, Vec<Duration>) {
    let mut going_on = std::pin::pin!(going_on);
    let mut took = Vec::new();
    loop {
        let begun = Instant::now();
        tokio::select! {
            value = &mut going_on => return (value, took),
            result = rig.run(id, "true") => {
                assert_eq!(result.unwrap().exit_code, Some(0));
                took.push(begun.elapsed());
            }
        }
    }
}

/// A neighbour's command takes milliseconds. Beside it run other tests, and whatever else this host has to do: so the median
/// tells, and no single one may take as long as a client would wait.
fn assert_unharmed(mut took: Vec<Duration>) {
    took.sort_unstable();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    assert!(
        median < Duration::from_millis(200) && slowest < Duration::from_secs(5),
        "half of a neighbour's {} commands took more than {median:?}, the slowest {slowest:?}",
        took.len()
    );
}
