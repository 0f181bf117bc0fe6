//! Dependencies between the crates of this repository point down only, as in the table of ARCHITECTURE.md.

use super::Violation;
use super::graph::Graph;

/// A crate, the crates of the workspace that it may use, and those that only its tests may use.
struct Layer {
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
}

const fn layer(
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
) -> Layer {
    Layer { name, uses, tests_use }
}

const LAYERS: [Layer; 36] = [
    layer("base", &[], &[]),
    layer("sandboxd-api", &[], &[]),
    layer("guest-proto", &[], &[]),
    layer("rules", &["base", "sandboxd-api"], &[]),
    layer("permits", &["base", "rules"], &[]),
    layer("store", &["base", "sandboxd-api", "rules", "permits"], &[]),
    layer("dockerfile", &[], &[]),
    layer("reader", &["sandboxd-api", "rules"], &[]),
    layer("tarball", &[], &[]),
    layer("image", &["base", "sandboxd-api", "rules", "permits", "tarball"], &[]),
    layer("archive", &["base"], &[]),
    layer("egress", &["base", "sandboxd-api", "rules"], &[]),
    layer("netlink", &[], &[]),
    layer("net", &["base", "sandboxd-api", "rules", "egress", "netlink"], &[]),
    layer("driver", &["base", "sandboxd-api", "rules", "guest-proto"], &[]),
    layer("rootfs", &[], &[]),
    layer("launcher", &["rootfs"], &[]),
    layer("driver-host", &["base", "sandboxd-api", "driver", "netlink", "rootfs"], &[]),
    layer("driver-native", &["base", "sandboxd-api", "driver", "driver-host", "launcher"], &[]),
    layer("driver-oci", &["sandboxd-api", "driver", "driver-host", "rootfs"], &[]),
    layer(
        "engine",
        &[
            "base",
            "sandboxd-api",
            "guest-proto",
            "rules",
            "permits",
            "store",
            "image",
            "net",
            "driver",
            "archive",
        ],
        &[],
    ),
    layer("listen", &["base"], &[]),
    layer("admission", &["base", "sandboxd-api", "rules", "store", "listen", "reader"], &[]),
    layer(
        "builder",
        &["base", "sandboxd-api", "dockerfile", "rules", "permits", "store", "engine", "tarball"],
        &["driver", "net"],
    ),
    layer(
        "service",
        &[
            "admission",
            "base",
            "sandboxd-api",
            "rules",
            "store",
            "image",
            "archive",
            "engine",
            "dockerfile",
            "builder",
            "reader",
            "mcp",
        ],
        &[],
    ),
    layer(
        "e2b",
        &[
            "admission",
            "service",
            "base",
            "sandboxd-api",
            "rules",
            "reader",
            "store",
            "engine",
            "builder",
            "listen",
        ],
        &["dockerfile", "driver", "net"],
    ),
    layer(
        "native",
        &[
            "admission",
            "service",
            "base",
            "sandboxd-api",
            "rules",
            "store",
            "image",
            "net",
            "driver",
            "engine",
            "dockerfile",
            "builder",
            "listen",
            "reader",
            "sandboxd-client",
            "mcp",
        ],
        &[],
    ),
    layer(
        "relay",
        &[
            "admission",
            "service",
            "native",
            "e2b",
            "base",
            "sandboxd-api",
            "rules",
            "store",
            "engine",
            "listen",
            "sandboxd-client",
        ],
        &["driver"],
    ),
    // Only the program that assembles the parts depends on an isolation backend.
    layer(
        "sandboxd",
        &[
            "base",
            "sandboxd-api",
            "rules",
            "store",
            "image",
            "archive",
            "net",
            "driver",
            "driver-host",
            "driver-native",
            "driver-oci",
            "engine",
            "builder",
            "admission",
            "service",
            "native",
            "e2b",
            "relay",
            "listen",
            "mcp",
        ],
        &[],
    ),
    layer("sandbox-agent", &["guest-proto"], &[]),
    layer("sandboxd-client", &["sandboxd-api"], &["sandboxd"]),
    layer("mcp", &["base", "sandboxd-client"], &["sandboxd"]),
    layer("sbx", &["base", "dockerfile", "sandboxd-client", "mcp"], &[]),
    layer("bench", ANY, &[]),
    layer("e2e", ANY, &[]),
    layer("xtask", &[], &[]),
];

/// Programs that use the whole service may depend on all crates.
const ANY: &[&str] = &[
    "base",
    "sandboxd-api",
    "guest-proto",
    "rules",
    "store",
    "image",
    "archive",
    "egress",
    "net",
    "driver",
    "driver-host",
    "driver-native",
    "driver-oci",
    "engine",
    "e2b",
    "listen",
    "reader",
    "sandboxd-client",
    "mcp",
    "e2e",
];

/// Finds dependencies between crates that their levels do not permit.
pub fn check(graph: &Graph) -> Vec<Violation> {
    let ours: Vec<&str> = graph.members().map(|p| p.name.as_str()).collect();
    let mut found = Vec::new();
    for package in graph.members() {
        let Some(layer) = LAYERS.iter().find(|l| l.name == package.name) else {
            let remedy = format!(
                "{} has no level; add it to xtask/src/tidy/layers.rs and ARCHITECTURE.md",
                package.name
            );
            found.push(Violation::new(&package.manifest, 1, "layers", remedy));
            continue;
        };
        for dependency in package.declared.iter().filter(|d| ours.contains(&d.name.as_str())) {
            let name = dependency.name.as_str();
            let allowed =
                layer.uses.contains(&name) || dependency.tests_only && layer.tests_use.contains(&name);
            // The tests of a crate may depend on the crate itself to enable a feature.
            if !allowed && name != package.name {
                let remedy =
                    format!("{} may not use {name}; it may use: {}", package.name, layer.uses.join(", "));
                found.push(Violation::new(&package.manifest, 1, "layers", remedy));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::graph::{Declared, Package};

    fn graph(name: &str, dependency: &str, tests_only: bool) -> Graph {
        let declared = vec![Declared { name: dependency.into(), tests_only }];
        let package = Package { name: name.into(), declared, ..Package::default() };
        let mut packages = vec![package];
        if dependency != "serde" {
            packages.push(Package { name: dependency.into(), ..Package::default() });
        }
        Graph { packages }
    }

    #[test]
    fn dependencies_that_point_up_or_sideways_are_found() {
        assert_eq!(check(&graph("rules", "store", false)).len(), 1);
        assert_eq!(check(&graph("engine", "driver-oci", true)).len(), 1);
        assert_eq!(check(&graph("driver-oci", "guest-proto", false)).len(), 1);
        assert_eq!(check(&graph("new", "sandboxd-api", false))[0].rule, "layers");
    }

    #[test]
    fn dependencies_that_point_down_pass() {
        assert!(check(&graph("engine", "rules", false)).is_empty());
        assert!(check(&graph("e2b", "net", true)).is_empty());
        assert!(check(&graph("sandboxd-api", "serde", false)).is_empty());
    }
}
