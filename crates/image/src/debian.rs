//! Builds a Debian root on this host with `mmdebstrap`, from the machine's mirror. The default catalogue falls back
//! to it if no registry can be reached.
//!
//! Such an image has up to six layers: the common base, which images share; the additional packages; Node from the
//! npm registry, the code interpreter and the paths of a desktop, if requested; and a small one with `/etc/sandbox-image`, which
//! describes the image and its versions, and with the user that the official image has, if requested.

mod about;
mod desktop;
mod extend;
mod interpreter;
mod node;
mod users;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tar::{EntryType, Header};

use crate::client::Audience;
use crate::fault::Fault;
use crate::job::{Builds, Job, UnpackedImage};
use crate::layers::{Build, Slot};
use crate::process::{contained, is_installed, run};
use crate::progress::PullStep;
use crate::rootfs::plain_config;
use crate::unpack::Whiteouts;

/// A pseudo package for Node 22, which Debian does not have.
const NODE: &str = "node22";
/// A pseudo package for the code interpreter, which is part of this program.
const INTERPRETER: &str = "code-interpreter";
/// A pseudo package for the paths at which clients of desktops look for programs.
const DESKTOP: &str = "desktop";
/// The packages that the default images share. Clients of E2B expect them in every template.
const COMMON: [&str; 10] =
    ["ca-certificates", "curl", "git", "iproute2", "iputils-ping", "jq", "less", "procps", "socat", "sudo"];
const BUILD_LIMIT: Duration = Duration::from_secs(900);

pub(crate) async fn build(job: &Job, suite: &str, packages: &[String]) -> Result<UnpackedImage, Fault> {
    job.meter.stage(PullStep::Building);
    let debian: Vec<&str> = packages
        .iter()
        .map(String::as_str)
        .filter(|package| {
            ![NODE, INTERPRETER, DESKTOP].contains(package) && users::added_by(package).is_none()
        })
        .collect();
    let user = packages.iter().find_map(|package| users::added_by(package));
    let has = |pseudo: &str| packages.iter().any(|package| package == pseudo);
    let (base_packages, more) = split(&debian);
    let arch = std::env::consts::ARCH;
    let base_key = format!("debian:{suite}+{} {arch}", base_packages.join("+"));
    let (base_build, base) = layer(job, &base_key, bootstrap(job, suite, &base_packages)).await?;
    let mut layers = vec![base.clone()];
    let mut built = vec![(base_key, base_build, base.clone())];
    if !more.is_empty() {
        // The key contains the id of the base: packages are installed on the root they were resolved against.
        let key = format!("{} + {} {arch}", base.id, more.join("+"));
        let (build, slot) = layer(job, &key, extend::build(job, &base, &more)).await?;
        layers.insert(0, slot.clone());
        built.push((key, build, slot));
    }
    if has(NODE) {
        let key = format!("{NODE} {arch}");
        let (build, slot) = layer(job, &key, node::build(job)).await?;
        layers.insert(0, slot.clone());
        built.push((key, build, slot));
    }
    if has(INTERPRETER) {
        layers.insert(0, interpreter::layer(job).await?);
    }
    if has(DESKTOP) {
        layers.insert(0, desktop::layer(job).await?);
    }
    let about = about::About::read(job, suite, &debian, &layers).await.with_user(user);
    layers.insert(0, about.layer(job).await?);
    let ids: Vec<&str> = layers.iter().map(|slot| slot.id.as_str()).collect();
    let digest = format!("sha256:{}", crate::unpack::sha256_hex(ids.join("\n").as_bytes()));
    let mut config = plain_config();
    config.env.push(("LANG".to_owned(), "C.UTF-8".to_owned()));
    Ok(UnpackedImage {
        digest,
        audience: Audience::Everyone,
        layers,
        config,
        stand_in: about.stand_in,
        versions: about.versions,
        built,
    })
}

/// Splits the common base from the additional packages, so that it is built and stored once. If a package of the base
/// is missing, nothing is shared.
fn split<'a>(packages: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    if COMMON.iter().all(|common| packages.contains(common)) {
        packages.iter().partition(|package| COMMON.contains(package))
    } else {
        (packages.to_vec(), vec![])
    }
}

/// The layer for `key`, built now or by an earlier pull.
async fn layer(
    job: &Job,
    key: &str,
    make: impl Future<Output = Result<Arc<Slot>, Fault>>,
) -> Result<(Arc<Build>, Arc<Slot>), Fault> {
    let make = async {
        match job.store.built(key) {
            Some(id) if job.builds == Builds::Reuse => Ok(job.layers.slot(&Audience::Everyone, &id)),
            _ => make.await,
        }
    };
    job.layers.build(key, make).await
}

async fn bootstrap(job: &Job, suite: &str, packages: &[&str]) -> Result<Arc<Slot>, Fault> {
    if !is_installed("mmdebstrap") {
        return Err(Fault::tool("mmdebstrap is not installed; install the package mmdebstrap"));
    }
    let scratch = job.scratch()?;
    let tar = scratch.path().join("root.tar");
    let mut command = contained("mmdebstrap");
    // Not quiet: then its errors would be missing, too.
    command.args(["--variant=minbase", "--format=tar"]);
    // A sandbox has its own /dev, host name and name servers instead of this host's.
    command.args(["--skip=output/dev", r#"--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname""#]);
    if !packages.is_empty() {
        command.arg(format!("--include={}", packages.join(",")));
    }
    command.arg(suite).arg(&tar).env("TMPDIR", scratch.path()).env("LC_ALL", "C.UTF-8");
    run("mmdebstrap", command, scratch.path(), BUILD_LIMIT).await?;
    let (unpacked, tree) = job.unpack_file(tar, Whiteouts::Refuse).await?;
    job.add_layer(&unpacked.diff_id, tree).await
}

/// The header of an entry that belongs to root.
fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

/// Reads a text file of an untrusted tree, up to a bound and without following links.
fn read_text(path: &Path) -> Option<String> {
    use std::io::Read;
    const TEXT_BYTES: u64 = 32 << 20;
    if !path.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(TEXT_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_base_is_split_off() {
        let whole = [COMMON.as_slice(), &["python3"]].concat();
        assert_eq!(split(&whole), (COMMON.to_vec(), vec!["python3"]));
        assert_eq!(split(&COMMON), (COMMON.to_vec(), vec![]));
        assert_eq!(split(&["git", "python3"]), (vec!["git", "python3"], vec![]));
    }
}
