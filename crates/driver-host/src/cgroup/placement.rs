//! Selects the host's processors for a sandbox, so that `nproc` inside shows the sandbox's number.
//!
//! The choice depends only on the sandbox's slot: nothing has to be stored, and adjacent slots use different processors.

use driver::SandboxSpec;
use rustix::thread::{CpuSet, sched_getaffinity};

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
