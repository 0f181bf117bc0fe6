//! Exhaustion of resources in a sandbox: its agent, its neighbours and this process are not affected.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod exhaustion;
mod floods;
mod losses;

use std::time::{Duration, Instant};

use api::{ExecuteRequest, ExecutionResult, Resources, SandboxConfig, SandboxId};
use e2e::{Rig, RigOptions, command, config, wait_until, with_rig};

/// Runs a test with one sandbox that is small, so that its resources are exhausted quickly.
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

/// Runs a command with a timeout.
async fn run_for(rig: &Rig, id: &SandboxId, text: &str, timeout_ms: u64) -> ExecutionResult {
    let request = ExecuteRequest { timeout_ms, ..command(text) };
    rig.engine.sandbox("test", id).execute(request).await.unwrap().collect(1 << 20).await.unwrap()
}

/// Checks that a command runs; returns the start time of the agent, which identifies its process.
async fn agent_start_time(rig: &Rig, id: &SandboxId) -> String {
    rig.output(id, "cut -d' ' -f22 /proc/1/stat").await.unwrap()
}

/// The latencies of a neighbour's commands during some work.
async fn measure_neighbour<T>(
    rig: &Rig,
    id: &SandboxId,
    work: impl Future<Output = T>,
) -> (T, Vec<Duration>) {
    let mut work = std::pin::pin!(work);
    let mut took = Vec::new();
    loop {
        let begun = Instant::now();
        tokio::select! {
            value = &mut work => return (value, took),
            result = rig.run(id, "true") => {
                assert_eq!(result.unwrap().exit_code, Some(0));
                took.push(begun.elapsed());
            }
        }
    }
}

/// A neighbour's command takes milliseconds. Other tests run concurrently, so the median is limited, and the slowest command
/// only by what a client would accept.
fn assert_neighbour_unaffected(mut took: Vec<Duration>) {
    took.sort_unstable();
    let (median, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    assert!(
        median < Duration::from_millis(200) && slowest < Duration::from_secs(5),
        "the neighbour's {} commands have a median of {median:?}, a maximum of {slowest:?}",
        took.len()
    );
}
