//! The bundle of a container: its description as an OCI runtime reads it.

use std::fs;
use std::path::Path;

use driver::{AtStep, DriverError, DriverStep};
use driver_host::{Start, SysView, describe, seccomp};
use oci_spec::runtime::{LinuxNamespaceType, LinuxSeccomp, Spec};

/// Writes the bundle. `network` is the path of the container's network namespace; without one the runtime creates it.
pub fn write_bundle(
    start: &Start<'_>,
    filter: LinuxSeccomp,
    network: Option<&Path>,
) -> Result<(), DriverError> {
    let mut description = describe(start, SysView::Covered)?;
    if let Some(linux) = description.linux_mut() {
        linux.set_seccomp(Some(filter));
    }
    if let Some(path) = network {
        join_network(&mut description, path);
    }
    let text = serde_json::to_vec(&description).at(DriverStep::WriteBundle)?;
    fs::write(start.paths.run.join("config.json"), text).at(DriverStep::WriteBundle)
}

/// The rules of system calls, as a container has them.
pub fn filter() -> Result<LinuxSeccomp, DriverError> {
    seccomp().at(DriverStep::MakeCallFilter)
}

fn join_network(description: &mut Spec, path: &Path) {
    let linux = description.linux_mut().as_mut();
    let namespaces = linux.and_then(|linux| linux.namespaces_mut().as_mut());
    for namespace in namespaces.into_iter().flatten() {
        if namespace.typ() == LinuxNamespaceType::Network {
            namespace.set_path(Some(path.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The types of the namespaces that have a path.
    fn joined(description: &Spec) -> Vec<(LinuxNamespaceType, String)> {
        let namespaces = description.linux().as_ref().unwrap().namespaces().as_ref().unwrap();
        let with_path = namespaces.iter().filter_map(|namespace| {
            let path = namespace.path().as_ref()?.to_str().unwrap().to_owned();
            Some((namespace.typ(), path))
        });
        with_path.collect()
    }

    #[test]
    fn only_the_network_namespace_is_joined() {
        let mut description = Spec::default();
        let count = description.linux().as_ref().unwrap().namespaces().as_ref().unwrap().len();
        assert!(count > 1 && joined(&description).is_empty());
        join_network(&mut description, Path::new("/proc/1/fd/5"));
        assert_eq!(joined(&description), [(LinuxNamespaceType::Network, "/proc/1/fd/5".to_owned())]);
    }

    #[test]
    fn a_description_without_namespaces_stays_as_it_is() {
        let mut description = Spec::default();
        description.set_linux(None);
        join_network(&mut description, Path::new("/x"));
        assert!(description.linux().is_none());
    }
}
