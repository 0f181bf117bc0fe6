//! Disk rate limits: a sandbox cannot read or write faster than its limit, and others are not slowed down.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use api::SandboxId;
use driver_host::DiskRates;
use e2e::{Rig, RigOptions, with_rig};

const RATE_MB: u32 = 16;
/// Two seconds at the limit.
const SIZE_MB: u32 = 2 * RATE_MB;
/// A throttle may finish a fraction of a second early.
const MIN_DURATION: Duration = Duration::from_millis(1_600);

fn limited() -> RigOptions {
    let rates = DiskRates { read_mb_per_s: RATE_MB, write_mb_per_s: RATE_MB, iops: 0 };
    RigOptions { disk_rates: rates, ..RigOptions::default() }
}

async fn took(rig: &Rig, id: &SandboxId, command: &str) -> Duration {
    let begun = Instant::now();
    rig.output(id, command).await.unwrap();
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_and_writes_are_limited() {
    with_rig(limited(), async |rig| {
        let id = rig.create().await.unwrap();
        let dd = |of: &str, how: &str| {
            format!("dd if=/dev/zero of=/workspace/{of} bs=1M count={SIZE_MB} {how} 2>&1")
        };
        for (name, command) in [
            ("direct writes", dd("direct", "oflag=direct")),
            ("writes with a sync at the end", dd("synced", "conv=fsync")),
            ("buffered writes", format!("{} && sync", dd("later", ""))),
            (
                "direct reads",
                format!("dd if=/workspace/direct of=/dev/null bs=1M count={SIZE_MB} iflag=direct 2>&1"),
            ),
        ] {
            let took = took(rig, &id, &command).await;
            println!("{name}: {SIZE_MB} MB in {took:?}");
            assert!(took >= MIN_DURATION, "{name}: {SIZE_MB} MB in {took:?}");
            assert!(took < Duration::from_secs(20), "{name}: {SIZE_MB} MB in {took:?}");
        }
        // Both kinds concurrently: under cgroup v1 each kind has the limit.
        let both = format!("({} && sync) & {}; wait", dd("b1", ""), dd("b2", "oflag=direct"));
        let took = took(rig, &id, &both).await;
        println!("both kinds concurrently: {} MB in {took:?}", 2 * SIZE_MB);
        assert!(took >= MIN_DURATION, "both kinds concurrently: {} MB in {took:?}", 2 * SIZE_MB);
    })
    .await;
}

/// Each sandbox has its own limit. A removed sandbox leaves no limit on its loop device.
#[tokio::test(flavor = "multi_thread")]
async fn limits_apply_to_one_sandbox_and_end_with_it() {
    with_rig(limited(), async |rig| {
        let (busy, quiet) = (rig.create().await.unwrap(), rig.create().await.unwrap());
        rig.output(&busy, "dd if=/dev/zero of=/workspace/x bs=1M count=256 >/dev/null 2>&1 </dev/null &")
            .await
            .unwrap();
        let small = took(rig, &quiet, "dd if=/dev/zero of=/workspace/x bs=1M count=2 conv=fsync 2>&1").await;
        assert!(small < Duration::from_secs(5), "{small:?}");
        let devices: Vec<String> = [&busy, &quiet].map(|id| device(rig, id)).into();
        for id in [busy, quiet] {
            rig.engine.sandbox("test", &id).terminate("the test ends").await.unwrap();
        }
        // Termination returns when the processes are dead; the disk is removed in the background.
        let removed = Instant::now();
        while devices.iter().any(|device| has_stale_limit(device)) {
            assert!(removed.elapsed() < Duration::from_secs(20), "{devices:?}: {}", root_limits());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

fn root_limits() -> String {
    std::fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device").unwrap_or_default()
}

/// Whether a detached loop device has a limit. Another test may have attached the device again with its own limit.
fn has_stale_limit(device: &str) -> bool {
    let is_attached = std::fs::read_dir(format!("/sys/dev/block/{device}/loop")).is_ok();
    !is_attached && root_limits().lines().any(|line| line.starts_with(&format!("{device} ")))
}

fn device(rig: &Rig, id: &SandboxId) -> String {
    std::fs::read_to_string(rig.run.join("sandboxes").join(id.as_str()).join("disk.device")).unwrap()
}
