//! The description in a built image: its actual versions and, for a stand-in, the reason.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tar::{Builder, EntryType};

use super::users::AccountFiles;
use super::{header, read_text};
use crate::fault::Fault;
use crate::job::Job;
use crate::layers::Slot;
use crate::unpack::{Whiteouts, unpack};

/// Programs whose versions the description lists, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 5] = [
    ("bash", "bash"),
    ("coreutils", "coreutils"),
    ("curl", "curl"),
    ("git", "git"),
    ("python", "python3-minimal"),
];

/// dpkg's list of installed packages.
const DPKG_STATUS: &str = "var/lib/dpkg/status";

pub(super) struct About {
    text: String,
    pub(super) stand_in: Option<String>,
    pub(super) versions: Vec<(String, String)>,
    /// The directory with the marker file that makes Debian's pip refuse installations, if it exists.
    pip_marker_dir: Option<String>,
    has_python: bool,
    accounts: AccountFiles,
    user: Option<&'static str>,
}

impl About {
    /// Reads the versions from the layers, topmost first.
    pub(super) async fn read(job: &Job, suite: &str, packages: &[&str], layers: &[Arc<Slot>]) -> Self {
        let (mut status, mut pip, mut of_node, mut accounts) = (None, None, vec![], AccountFiles::default());
        for layer in layers {
            let found = layer.with_tree(&job.store, |tree| {
                let accounts = AccountFiles::read(tree);
                (read_text(&tree.join(DPKG_STATUS)), pip_marker_dir(tree), node_versions(tree), accounts)
            });
            let (its_status, its_pip, its_node, its_accounts) = found.await;
            accounts = accounts.above(its_accounts);
            status = status.or(its_status);
            pip = pip.or(its_pip);
            of_node.extend(its_node);
        }
        let status = status.unwrap_or_default();
        let found = PROGRAMS.iter().filter_map(|(program, package)| {
            Some(((*program).to_owned(), upstream(installed(&status, package)?)))
        });
        let versions: Vec<(String, String)> = found.chain(of_node).collect();
        let list = versions
            .iter()
            .map(|(program, version)| format!("{program} {version}"))
            .collect::<Vec<_>>()
            .join(", ");
        let stand_in = job.stands_in_because.as_ref().map(|because| {
            format!(
                "{} on this host is a stand-in built from Debian {suite}, because {because}; it contains {list}",
                job.name
            )
        });
        let has_python = versions.iter().any(|(program, _)| program == "python");
        let text = text(job, suite, packages, &versions, pip.as_deref());
        Self { text, stand_in, versions, pip_marker_dir: pip, has_python, accounts, user: None }
    }

    /// With a user that Debian does not have.
    pub(super) fn with_user(self, user: Option<&'static str>) -> Self {
        Self { user, ..self }
    }

    /// A layer with `/etc/sandbox-image`, a link `python`, the user, and without the marker file that disables pip.
    pub(super) async fn layer(&self, job: &Job) -> Result<Arc<Slot>, Fault> {
        let tar = self.tar().map_err(Fault::io("describe the image"))?;
        let (unpacked, scratch) = job
            .unpack_with(Whiteouts::Honour, move |tree, rules| unpack(tar.as_slice(), tree, rules))
            .await?;
        job.add_layer(&unpacked.diff_id, scratch).await
    }

    fn tar(&self) -> std::io::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        // mmdebstrap creates no /dev, which sandboxes need as a mount point.
        for dir in ["./", "dev/", "etc/"] {
            tar.append_data(&mut header(EntryType::Directory, 0o755), dir, std::io::empty())?;
        }
        let mut file = header(EntryType::Regular, 0o644);
        file.set_size(self.text.len() as u64);
        tar.append_data(&mut file, "etc/sandbox-image", self.text.as_bytes())?;
        if let Some(user) = self.user {
            self.accounts.write_with(user, &mut tar)?;
        }
        if self.has_python {
            for dir in ["usr/", "usr/local/", "usr/local/bin/"] {
                tar.append_data(&mut header(EntryType::Directory, 0o755), dir, std::io::empty())?;
            }
            let mut link = header(EntryType::Symlink, 0o777);
            tar.append_link(&mut link, "usr/local/bin/python", "/usr/bin/python3")?;
        }
        if let Some(dir) = &self.pip_marker_dir {
            for dir in ["usr/lib/".to_owned(), format!("{dir}/")] {
                tar.append_data(&mut header(EntryType::Directory, 0o755), dir, std::io::empty())?;
            }
            let whiteout = format!("{dir}/.wh.{PIP_MARKER}");
            tar.append_data(&mut header(EntryType::Regular, 0o644), whiteout, std::io::empty())?;
        }
        tar.into_inner()
    }
}

const PIP_MARKER: &str = "EXTERNALLY-MANAGED";

/// Finds the marker file that makes pip refuse to install for the whole system. A sandbox has no other user of the
/// system's Python, so the layer removes it.
fn pip_marker_dir(tree: &Path) -> Option<String> {
    let libs = std::fs::read_dir(tree.join("usr/lib")).ok()?;
    let mut names = libs.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let dir = names.find(|name| {
        name.starts_with("python3.") && tree.join("usr/lib").join(name).join(PIP_MARKER).is_file()
    })?;
    Some(format!("usr/lib/{dir}"))
}

fn text(
    job: &Job,
    suite: &str,
    packages: &[&str],
    versions: &[(String, String)],
    removed_pip_marker: Option<&str>,
) -> String {
    // The failures of earlier sources are for the operator: they name hosts that a sandbox should not learn.
    let mut text = match job.stands_in_because {
        Some(_) => format!(
            "This is a stand-in for {}, built from Debian {suite} on the sandbox's host,\nbecause no registry that has the real image could be used.\n",
            job.name
        ),
        None => format!("This is {}, built from Debian {suite} on the sandbox's host.\n", job.name),
    };
    text += "\nIt has:\n";
    for (program, version) in versions {
        text += &format!("  {program} {version}\n");
    }
    text += &format!("\nRequested Debian packages: {}\n", packages.join(" "));
    if removed_pip_marker.is_some() {
        text += "pip installs for the whole system: Debian's EXTERNALLY-MANAGED marker was removed.\n";
    }
    text
}

/// The version of an installed package in dpkg's list.
fn installed<'a>(status: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("Package: {package}");
    let paragraph = status.split("\n\n").find(|paragraph| paragraph.lines().any(|line| line == name))?;
    paragraph.lines().find_map(|line| line.strip_prefix("Version: "))
}

/// Debian's version without epoch and revision: `1:2.39.5-0+deb12u2` is 2.39.5.
fn upstream(version: &str) -> String {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let version = version.rsplit_once('-').map_or(version, |(upstream, _)| upstream);
    version.split('+').next().unwrap_or(version).to_owned()
}

fn node_versions(tree: &Path) -> Vec<(String, String)> {
    let files = [("node", super::node::VERSION_FILE), ("npm", super::node::NPM_MANIFEST)];
    files
        .iter()
        .filter_map(|(program, file)| Some(((*program).to_owned(), manifest_version(&tree.join(file))?)))
        .collect()
}

fn manifest_version(path: &Path) -> Option<String> {
    let manifest: Value = serde_json::from_str(&read_text(path)?).ok()?;
    Some(manifest.get("version")?.as_str()?.chars().take(100).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_upstream() {
        let known = [
            ("1:2.39.5-0+deb12u2", "2.39.5"),
            ("5.2.15-2+b8", "5.2.15"),
            ("3.11.2-1+b1", "3.11.2"),
            ("9.1", "9.1"),
        ];
        for (debian, expected) in known {
            assert_eq!(upstream(debian), expected);
        }
        let status = "Package: a\nVersion: 1-1\n\nPackage: bash\nStatus: ok\nVersion: 5.2.15-2+b8\n\nPackage: bashful\nVersion: 9\n";
        assert_eq!(installed(status, "bash"), Some("5.2.15-2+b8"));
        assert_eq!(installed(status, "git"), None);
    }
}
