//! Many sandboxes leave nothing on the host. `./dev e2b-soak` runs more cycles.

use std::time::Duration;

use e2e::{Expected, wait_for_resources};

use crate::{E2bService, Language, PROGRAM_TIMEOUT};

const CYCLES: u32 = 100;
/// Cycles per program, so that each ends within its time limit.
const BATCH: u32 = 100;
const CONCURRENCY: &str = "8";
/// File descriptors that the daemon may have more afterwards: idle connections and timers.
const SPARE_FILES: usize = 40;
const SPARE_MEMORY_KB: u64 = 64 << 10;

/// Open files, and resident memory in KB, of the daemon.
fn resources(e2b: &E2bService) -> (usize, u64) {
    (e2b.service.open_files().unwrap(), e2b.service.resident_kb().unwrap())
}

async fn run_cycles(e2b: &E2bService, count: u32) -> Option<()> {
    let packages = Language::Python.packages()?;
    let mut command = Language::Python.command(&packages[0], "cycles");
    command.args([&count.to_string(), CONCURRENCY]);
    e2b.passes(command).await;
    Some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cycles_of_create_run_and_kill_leave_nothing_behind() {
    let cycles: u32 = std::env::var("SANDBOXD_E2B_CYCLES").map_or(CYCLES, |text| text.parse().unwrap());
    let e2b = E2bService::start().await;
    // The first ones fill caches.
    let Some(()) = run_cycles(&e2b, 20).await else { return };
    let before = resources(&e2b);
    for done in (0..cycles).step_by(BATCH as usize) {
        run_cycles(&e2b, BATCH.min(cycles - done)).await;
    }
    let expected = Expected { daemon: e2b.service.pid(), ..Expected::default() };
    assert_eq!(wait_for_resources(&e2b.service.layout, &expected).await, Vec::<String>::new());
    let mut after = resources(&e2b);
    let begin = std::time::Instant::now();
    while after.0 > before.0 + SPARE_FILES && begin.elapsed() < PROGRAM_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(200)).await;
        after = resources(&e2b);
    }
    println!("{cycles} cycles: files and KB {before:?} -> {after:?}");
    assert!(after.0 <= before.0 + SPARE_FILES, "files: {before:?} -> {after:?}");
    assert!(after.1 <= before.1 + SPARE_MEMORY_KB, "memory: {before:?} -> {after:?}");
}
