//! `[resources]`: which resources a request may ask for.

use api::Resources;
use api::bounds::{CPU, DISK_MB, MEMORY_MB};
use rules::ConfigRules;
use serde::{Deserialize, Serialize};

use super::bounds::within;
use super::problems::Problems;

/// A process needs some memory before it can run out of it.
const LEAST_MEMORY_MB: u32 = 128;
/// The file system and its journal need some of the disk.
const LEAST_DISK_MB: u32 = 512;

/// What requests may ask for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestedResources {
    pub minimum: Minimum,
}

/// The least that a request may ask for. The default is the documented API; an operator may lower it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Minimum {
    pub cpu: u32,
    pub memory_mb: u32,
    pub disk_mb: u32,
}

impl Default for Minimum {
    fn default() -> Self {
        Self { cpu: CPU[0], memory_mb: MEMORY_MB.min, disk_mb: DISK_MB.min }
    }
}

impl RequestedResources {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let Minimum { cpu, memory_mb, disk_mb } = self.minimum;
        let bounds = [
            ("cpu", cpu, 1, CPU[0]),
            ("memory_mb", memory_mb, LEAST_MEMORY_MB, MEMORY_MB.min),
            ("disk_mb", disk_mb, LEAST_DISK_MB, DISK_MB.min),
        ];
        Problems::of(bounds.into_iter().map(|(key, value, least, most)| {
            within(&format!("resources.minimum.{key}"), value.into(), least.into(), most.into())
        }))
    }

    /// The rules of creates.
    pub fn rules(&self) -> ConfigRules {
        let Minimum { cpu, memory_mb, disk_mb } = self.minimum;
        ConfigRules::default().with_minimum(Resources { cpu, memory_mb, disk_mb })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RequestedResources {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_defaults_are_the_documented_api() {
        let resources = read("");
        resources.check().unwrap();
        assert_eq!(resources.rules(), ConfigRules::default());
    }

    #[test]
    fn an_operator_allows_smaller_sandboxes() {
        let resources = read("minimum = { cpu = 1, memory_mb = 512 }");
        resources.check().unwrap();
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
            let error = read(text).check().unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(allowed), "{error}");
        }
        let all = read("minimum = { cpu = 3, memory_mb = 64, disk_mb = 9999 }").check().unwrap_err();
        assert_eq!(all.lines().count(), 3, "{all}");
    }
}
