//! `[resources]`: which resources a request may ask for.

use api::Resources;
use api::bounds::{CPU, DISK_MB, MEMORY_MB};
use rules::ConfigRules;

use super::declare::table;

/// A process needs some memory before it can run out of it.
const LEAST_MEMORY_MB: u64 = 128;
/// The file system and its journal need some of the disk.
const LEAST_DISK_MB: u64 = 512;

table! {
    /// Which resources a request may ask for.
    pub struct RequestedResources {
        minimum: Minimum;
    }
}

table! {
    /// The least that a request may ask for. The defaults are those of the API; lower values allow smaller sandboxes. What a
    /// request gets that asks for nothing does not change.
    #[derive(Copy)]
    pub struct Minimum {
        /// vCPUs. `1` allows sandboxes with one.
        cpu: u32 = CPU[0], "vCPUs" in 1..=CPU[0].into();
        /// Memory.
        memory_mb: u32 = MEMORY_MB.min, "MB" in LEAST_MEMORY_MB..=MEMORY_MB.min.into();
        /// Disk.
        disk_mb: u32 = DISK_MB.min, "MB" in LEAST_DISK_MB..=DISK_MB.min.into();
    }
}

impl RequestedResources {
    /// The rules of creates.
    pub fn rules(&self) -> ConfigRules {
        let Minimum { cpu, memory_mb, disk_mb } = self.minimum;
        ConfigRules::default().with_minimum(Resources { cpu, memory_mb, disk_mb })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Problems};

    fn read(text: &str) -> RequestedResources {
        toml::from_str(text).unwrap()
    }

    fn check(resources: &RequestedResources) -> Result<(), Problems> {
        Config { resources: resources.clone(), ..Config::default() }.check()
    }

    #[test]
    fn the_defaults_are_the_documented_api() {
        let resources = read("");
        check(&resources).unwrap();
        assert_eq!(resources.rules(), ConfigRules::default());
    }

    #[test]
    fn an_operator_allows_smaller_sandboxes() {
        let resources = read("minimum = { cpu = 1, memory_mb = 512 }");
        check(&resources).unwrap();
        let rules = resources.rules();
        assert_eq!((&rules.cpu_allowed[..], rules.memory_mb.min), (&[1, 2, 4, 8][..], 512));
        assert_eq!((rules.disk_mb, rules.cpu_default), (DISK_MB, 2));
    }

    #[test]
    fn a_minimum_only_lowers_that_of_the_api() {
        for (text, key, allowed) in [
            ("minimum = { cpu = 4 }", "resources.minimum.cpu is 4", "1 to 2"),
            ("minimum = { memory_mb = 64 }", "resources.minimum.memory_mb is 64", "128 to 2048"),
            ("minimum = { disk_mb = 9999 }", "resources.minimum.disk_mb is 9999", "512 to 5120"),
        ] {
            let error = check(&read(text)).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(allowed), "{error}");
        }
        let all = check(&read("minimum = { cpu = 3, memory_mb = 64, disk_mb = 9999 }")).unwrap_err();
        assert_eq!(all.lines().count(), 3, "{all}");
    }
}
