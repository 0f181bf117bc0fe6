//! The processors of a sandbox: which of the host's it may use, so that `nproc` inside shows the sandbox's number, and how much of
//! their time.
//!
//! The choice depends only on the sandbox's slot: nothing has to be stored, and adjacent slots use different processors.

use driver::SandboxSpec;
use rustix::thread::{CpuSet, sched_getaffinity};

/// The period in which the quota of processor time counts.
pub const CPU_PERIOD_US: u64 = 20_000;
/// The time that a sandbox may use of each of its processors in a period. The rest is for others: threads that sleep for
/// microseconds otherwise keep the scheduler from running anybody else on their processors, for up to a minute on Linux 6.18. Each
/// time their cgroup has used its quota, the others run.
const CPU_QUOTA_US: u64 = 19_000;

/// The time in each [`CPU_PERIOD_US`] that a sandbox with this number of processors may use, on all of them together.
pub fn cpu_quota_us(cpu: u32) -> u64 {
    u64::from(cpu) * CPU_QUOTA_US
}

/// CPU shares in proportion to the number of processors.
pub fn shares(cpu: u32) -> u64 {
    u64::from(cpu) * 1024
}

/// The list in the format of cgroups. Contains all processors if the host has no more than requested.
pub fn cpus_of(spec: &SandboxSpec) -> String {
    list(&host_cpus(), spec.slot, spec.limits.cpu)
}

fn host_cpus() -> Vec<usize> {
    let affinity = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| affinity.is_set(*cpu)).collect()
}

fn list(host: &[usize], slot: u32, wanted: u32) -> String {
    let count = host.len().min(wanted as usize);
    let first = if host.is_empty() { 0 } else { (slot as usize * wanted as usize) % host.len() };
    let mut chosen: Vec<usize> = (0..count).map(|step| host[(first + step) % host.len()]).collect();
    chosen.sort_unstable();
    chosen.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_slots_use_different_processors() {
        let host = [0, 1, 2, 3, 4, 5];
        assert_eq!(list(&host, 0, 4), "0,1,2,3");
        assert_eq!(list(&host, 1, 4), "0,1,4,5");
        assert_eq!(list(&host, 2, 4), "2,3,4,5");
    }

    #[test]
    fn a_small_host_gives_all_its_processors() {
        assert_eq!(list(&[0, 1], 7, 8), "0,1");
    }
}
