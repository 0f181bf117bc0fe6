//! Installs additional packages as a separate layer over a built root, so that the default images share one base: apt
//! runs in an overlay over the root, and the upper directory becomes the layer.
//!
//! All mounts are in a mount namespace that ends with the command.

use std::path::Path;
use std::sync::Arc;

use super::BUILD_LIMIT;
use crate::fault::Fault;
use crate::job::Job;
use crate::layers::Slot;
use crate::process::{contained, run};
use crate::rootfs::{DirectoryForm, copy_dir};
use crate::unpack::Whiteouts;

/// Paths are relative to the work directory, because an overlay's options cannot be quoted. `$1` is the root, the
/// others are packages. Redirects are off, because they would name paths of this overlay.
const SCRIPT: &str = r#"set -eu
lower=$1; shift
mkdir lower upper work root
mount --bind "$lower" lower
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work,redirect_dir=nofollow,metacopy=off,index=off root
mkdir -p root/dev root/proc
mount -t proc proc root/proc
mount -t tmpfs -o mode=755 dev root/dev
for node in null zero full random urandom tty; do : > root/dev/$node; mount --bind /dev/$node root/dev/$node; done
for file in etc/resolv.conf usr/sbin/policy-rc.d; do test ! -e root/$file; : > root/$file; done
test ! -e /etc/resolv.conf || cat /etc/resolv.conf > root/etc/resolv.conf
printf '#!/bin/sh\nexit 101\n' > root/usr/sbin/policy-rc.d
chmod 755 root/usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
chroot root apt-get --quiet=2 update
chroot root apt-get --quiet=2 --yes --no-install-recommends install -- "$@"
chroot root apt-get clean
rm -rf root/var/lib/apt/lists/* root/var/log/apt/* root/var/log/dpkg.log root/var/cache/apt/*.bin
rm root/etc/resolv.conf root/usr/sbin/policy-rc.d
"#;

/// Number of attempts: another pull may move the root to its final path meanwhile.
const ATTEMPTS: usize = 3;

pub(super) async fn build(job: &Job, base: &Slot, packages: &[&str]) -> Result<Arc<Slot>, Fault> {
    let mut attempts = 1;
    let scratch = loop {
        let tree = base.with_tree(&job.store, Path::to_path_buf).await;
        let scratch = job.scratch()?;
        match install(&tree, scratch.path(), packages).await {
            Err(_) if attempts < ATTEMPTS && !tree.exists() => attempts += 1,
            other => break other.map(|()| scratch)?,
        }
    };
    let upper = scratch.path().join("upper");
    let copied = job
        .unpack_with(Whiteouts::Honour, move |tree, rules| {
            let unpacked = copy_dir(upper, DirectoryForm::Upper, tree, rules);
            drop(scratch);
            unpacked
        })
        .await?;
    job.add_layer(&copied.0.diff_id, copied.1).await
}

async fn install(tree: &Path, scratch: &Path, packages: &[&str]) -> Result<(), Fault> {
    let mut command = contained("sh");
    command.args(["-c", SCRIPT, "sh"]).arg(tree).args(packages).current_dir(scratch).env("LC_ALL", "C.UTF-8");
    run(&format!("apt-get install {}", packages.join(" ")), command, scratch, BUILD_LIMIT).await.map(drop)
}
