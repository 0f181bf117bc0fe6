//! Rate limits of a sandbox's disk, as throttles of its loop device. Called by the backends when a sandbox has started and before it is stopped.
//!
//! v2 charges every request to the sandbox that caused it, so one limit on its cgroup holds. v1 charges writes that the kernel does
//! in the background to the root cgroup. There each limit is set twice: for the sandbox's cgroup (reads, direct and synchronous writes)
//! and for the root cgroup, restricted to this loop device. A sandbox that writes in both ways at once gets at most twice the limit.
//!
//! A limit of the root cgroup outlives the sandbox: it is removed when the sandbox stops, and overwritten when the device is used next.

use std::fs;
use std::io;
use std::path::Path;

use super::is_gone;
use crate::loopdev::DeviceNumber;
use crate::settings::DiskRates;

const BYTES_PER_MB: u64 = 1 << 20;
/// The least rate that `io.max` takes. Linux 6.1 and others refuse 1, and with it the whole line.
const MAXIMUM_MIN: u64 = 2;

/// The throttles of cgroup v1 and their values; 0 is no limit.
fn throttles(rates: DiskRates) -> [(&'static str, u64); 4] {
    [
        ("blkio.throttle.read_bps_device", u64::from(rates.read_mb_per_s) * BYTES_PER_MB),
        ("blkio.throttle.write_bps_device", u64::from(rates.write_mb_per_s) * BYTES_PER_MB),
        ("blkio.throttle.read_iops_device", u64::from(rates.iops)),
        ("blkio.throttle.write_iops_device", u64::from(rates.iops)),
    ]
}

/// Sets the limits under v1. If the runtime creates no cgroup in this hierarchy, only the limits of the root cgroup
/// apply.
pub fn limit_v1(root: &Path, sandbox: &Path, device: DeviceNumber, rates: DiskRates) -> io::Result<()> {
    for (file, rate) in throttles(rates) {
        if rate > 0 && sandbox.exists() {
            fs::write(sandbox.join(file), format!("{device} {rate}"))?;
        }
        if rate > 0 || has_limit(&root.join(file), device)? {
            fs::write(root.join(file), format!("{device} {rate}"))?;
        }
    }
    Ok(())
}

/// Removes the limits of the root cgroup.
pub fn unlimit_v1(root: &Path, device: DeviceNumber) -> io::Result<()> {
    limit_v1(root, Path::new("/nonexistent"), device, DiskRates::default())
}

fn has_limit(file: &Path, device: DeviceNumber) -> io::Result<bool> {
    let prefix = format!("{device} ");
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.lines().any(|line| line.starts_with(&prefix))),
        // A kernel without throttles has none to remove.
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the limits under v2. The cgroup is new, so without limits there is nothing to do.
pub fn limit_v2(sandbox: &Path, device: DeviceNumber, rates: DiskRates) -> io::Result<()> {
    match io_max_line(device, rates) {
        Some(line) => fs::write(sandbox.join("io.max"), line),
        None => Ok(()),
    }
}

/// The line for `io.max`. A key that is left out is not limited.
fn io_max_line(device: DeviceNumber, rates: DiskRates) -> Option<String> {
    let of = |key: &str, rate: u64| (rate > 0).then(|| format!(" {key}={}", rate.max(MAXIMUM_MIN)));
    let limits: String = [
        of("rbps", u64::from(rates.read_mb_per_s) * BYTES_PER_MB),
        of("wbps", u64::from(rates.write_mb_per_s) * BYTES_PER_MB),
        of("riops", rates.iops.into()),
        of("wiops", rates.iops.into()),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!limits.is_empty()).then(|| format!("{device}{limits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber { major: 7, minor: 3 };

    #[test]
    fn io_max_gets_the_limits_that_are_set() {
        let lines = [
            ((10, 20, 100), "7:3 rbps=10485760 wbps=20971520 riops=100 wiops=100"),
            ((0, 20, 100), "7:3 wbps=20971520 riops=100 wiops=100"),
            ((1_000_000, 0, 0), "7:3 rbps=1048576000000"),
            ((0, 0, 1), "7:3 riops=2 wiops=2"),
        ];
        for ((read_mb_per_s, write_mb_per_s, iops), line) in lines {
            let sandbox = tempfile::tempdir().unwrap();
            limit_v2(sandbox.path(), DEVICE, DiskRates { read_mb_per_s, write_mb_per_s, iops }).unwrap();
            assert_eq!(fs::read_to_string(sandbox.path().join("io.max")).unwrap(), line);
        }
        let sandbox = tempfile::tempdir().unwrap();
        limit_v2(sandbox.path(), DEVICE, DiskRates::default()).unwrap();
        assert!(!sandbox.path().join("io.max").exists());
    }

    #[test]
    fn limits_of_an_earlier_sandbox_are_removed() {
        let root = tempfile::tempdir().unwrap();
        for (file, _) in throttles(DiskRates::default()) {
            fs::write(root.path().join(file), "7:30 5\n7:3 5\n").unwrap();
        }
        unlimit_v1(root.path(), DEVICE).unwrap();
        for (file, _) in throttles(DiskRates::default()) {
            assert_eq!(fs::read_to_string(root.path().join(file)).unwrap(), "7:3 0");
        }
        let other = DeviceNumber { major: 7, minor: 0 };
        fs::write(root.path().join("blkio.throttle.read_bps_device"), "7:3 5\n").unwrap();
        unlimit_v1(root.path(), other).unwrap();
        assert_eq!(
            fs::read_to_string(root.path().join("blkio.throttle.read_bps_device")).unwrap(),
            "7:3 5\n"
        );
    }
}
