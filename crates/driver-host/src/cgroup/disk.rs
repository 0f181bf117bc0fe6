//! Rate limits of a sandbox's disk, as throttles of its loop device. Called by the backends before a command runs, and before a sandbox is
//! stopped.
//!
//! v2 charges every request to the sandbox that caused it, so one limit on its cgroup holds. v1 charges writes that the kernel does
//! in the background to the root cgroup. There each limit is set twice: for the sandbox's cgroup (reads, direct and synchronous writes)
//! and for the root cgroup, restricted to this loop device. A sandbox that writes in both ways at once gets at most twice the limit.
//!
//! A limit of the root cgroup outlives the sandbox. It is removed when the sandbox stops. If its daemon was killed, the next one removes
//! it when it starts, or, if the device is attached then, when the device is used next.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::IgnorePoison;

use super::is_gone;
use crate::loopdev::{self, DeviceNumber};
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

/// The limits of the root cgroup under v1.
#[derive(Debug, Clone)]
pub struct RootDiskLimits {
    root: &'static Path,
    /// Devices whose limits an earlier daemon has set.
    stale: Arc<Mutex<HashSet<DeviceNumber>>>,
}

impl RootDiskLimits {
    pub fn new(root: &'static Path) -> Self {
        Self { root, stale: Arc::default() }
    }

    /// Sets the limits of a sandbox's disk, in both cgroups.
    pub fn set(&self, sandbox: &Path, device: DeviceNumber, rates: DiskRates) -> io::Result<()> {
        if self.stale.lock().ignore_poison().remove(&device) {
            unlimit_reused_v1(self.root, device)?;
        }
        limit_v1(self.root, sandbox, device, rates)
    }

    pub fn remove(&self, sandbox: &Path, device: DeviceNumber) -> io::Result<()> {
        unlimit_v1(self.root, sandbox, device)
    }

    /// Removes those that an earlier daemon has left: at once, or when their device is used next.
    pub fn remove_stale(&self) -> io::Result<()> {
        let attached = unlimit_free_v1(self.root, loopdev::is_free)?;
        self.stale.lock().ignore_poison().extend(attached);
        Ok(())
    }
}

/// Sets the limits under v1.
fn limit_v1(root: &Path, sandbox: &Path, device: DeviceNumber, rates: DiskRates) -> io::Result<()> {
    for (file, rate) in throttles(rates).into_iter().filter(|(_, rate)| *rate > 0) {
        // Otherwise the files of a kernel without throttles would be created.
        if !root.join(file).exists() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("the kernel has no {file}")));
        }
        fs::create_dir_all(sandbox)?;
        fs::write(sandbox.join(file), format!("{device} {rate}"))?;
        fs::write(root.join(file), format!("{device} {rate}"))?;
    }
    Ok(())
}

/// Removes those limits of the root cgroup that the sandbox's cgroup has too. The root's list is not read: the kernel visits every
/// device of the host for it.
fn unlimit_v1(root: &Path, sandbox: &Path, device: DeviceNumber) -> io::Result<()> {
    for (file, _) in throttles(DiskRates::default()) {
        if devices_with_limit(&sandbox.join(file))?.contains(&device) {
            remove(root, file, device)?;
        }
    }
    Ok(())
}

/// Removes the limits of devices that are not attached; returns the devices of the others.
fn unlimit_free_v1(root: &Path, is_free: impl Fn(DeviceNumber) -> bool) -> io::Result<Vec<DeviceNumber>> {
    let mut attached = Vec::new();
    for (file, _) in throttles(DiskRates::default()) {
        for device in devices_with_limit(&root.join(file))? {
            if is_free(device) {
                remove(root, file, device)?;
            } else {
                attached.push(device);
            }
        }
    }
    Ok(attached)
}

/// Removes the limits of a device that its last sandbox has left.
fn unlimit_reused_v1(root: &Path, device: DeviceNumber) -> io::Result<()> {
    throttles(DiskRates::default()).iter().try_for_each(|(file, _)| remove(root, file, device))
}

fn remove(root: &Path, file: &str, device: DeviceNumber) -> io::Result<()> {
    fs::write(root.join(file), format!("{device} 0"))
}

/// The devices that a throttle limits.
fn devices_with_limit(file: &Path) -> io::Result<Vec<DeviceNumber>> {
    let device = |line: &str| line.split(' ').next()?.parse().ok();
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.lines().filter_map(device).collect()),
        // A kernel without throttles, or a sandbox without limits.
        Err(error) if is_gone(&error) => Ok(Vec::new()),
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

    const THROTTLE: &str = "blkio.throttle.read_bps_device";

    #[test]
    fn a_limit_of_the_root_is_removed_if_the_sandbox_has_it_or_if_the_device_is_free() {
        let (root, sandbox) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let written = || fs::read_to_string(root.path().join(THROTTLE)).unwrap();
        let rates = DiskRates { read_mb_per_s: 1, ..DiskRates::default() };
        let error = limit_v1(root.path(), sandbox.path(), DEVICE, rates).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
        fs::write(root.path().join(THROTTLE), "").unwrap();
        limit_v1(root.path(), sandbox.path(), DEVICE, rates).unwrap();
        assert_eq!(written(), "7:3 1048576");
        unlimit_v1(root.path(), sandbox.path(), DeviceNumber { major: 7, minor: 30 }).unwrap();
        assert_eq!(written(), "7:3 1048576");
        unlimit_v1(root.path(), sandbox.path(), DEVICE).unwrap();
        assert_eq!(written(), "7:3 0");

        fs::write(root.path().join(THROTTLE), "7:30 5\n7:3 5\n").unwrap();
        unlimit_v1(root.path(), Path::new("/nonexistent"), DEVICE).unwrap();
        let other = DeviceNumber { major: 7, minor: 30 };
        assert_eq!(unlimit_free_v1(root.path(), |_| false).unwrap(), [other, DEVICE]);
        assert_eq!(written(), "7:30 5\n7:3 5\n");
        assert_eq!(unlimit_free_v1(root.path(), |device| device == DEVICE).unwrap(), [other]);
        assert_eq!(written(), "7:3 0");
        unlimit_reused_v1(root.path(), other).unwrap();
        assert_eq!(written(), "7:30 0");
    }
}
