//! Imports a root file system as an image with one layer: a tar, or a directory that is converted to a tar in a fixed
//! order. The layer's id is the digest of the tar.

mod walk;

use std::path::{Path, PathBuf};

use crate::client::Audience;
use crate::error::FailureKind;
use crate::fault::Fault;
use crate::image::ImageConfig;
use crate::job::{Job, UnpackedImage};
use crate::progress::PullStep;
use crate::unpack::{Rules, Unpacked, Whiteouts, unpack};

pub(crate) use walk::DirectoryForm;

/// `PATH` for images that do not set one.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) fn plain_config() -> ImageConfig {
    ImageConfig { env: vec![("PATH".to_owned(), PATH.to_owned())], workdir: None, user: None }
}

pub(crate) async fn import(job: &Job, path: &Path) -> Result<UnpackedImage, Fault> {
    let missing = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Fault::new(FailureKind::NotFound, format!("{} does not exist", path.display()))
        }
        _ => Fault::io(format!("open {}", path.display()))(e),
    };
    let meta = tokio::fs::metadata(path).await.map_err(missing)?;
    job.meter.stage(PullStep::Fetching);
    let (unpacked, scratch) = if meta.is_dir() {
        let dir = path.to_path_buf();
        job.unpack_with(Whiteouts::Refuse, move |tree, rules| copy_dir(dir, DirectoryForm::Root, tree, rules))
            .await?
    } else if meta.is_file() {
        job.unpack_file(path.to_path_buf(), Whiteouts::Refuse).await?
    } else {
        return Err(Fault::refused(format!("{} is neither a file nor a directory", path.display())));
    };
    check_root(&scratch.path().join(crate::layers::TREE), path)?;
    let digest = format!("sha256:{}", unpacked.blob_id);
    let layers = vec![job.add_layer(&unpacked.diff_id, scratch).await?];
    Ok(UnpackedImage {
        digest,
        audience: Audience::Everyone,
        layers,
        config: plain_config(),
        stand_in: None,
        versions: vec![],
        built: vec![],
    })
}

/// Checks that the tree is a root file system, so that the import fails instead of the start of a sandbox.
fn check_root(tree: &Path, path: &Path) -> Result<(), Fault> {
    let has = |name: &str| tree.join(name).symlink_metadata().is_ok();
    if has("bin") || has("usr") {
        return Ok(());
    }
    Err(Fault::refused(format!("{} is not a root file system: it has neither /bin nor /usr", path.display())))
}

/// Copies a directory through a tar that is not stored.
pub(crate) fn copy_dir(
    dir: PathBuf,
    form: DirectoryForm,
    tree: &Path,
    rules: &Rules,
) -> Result<Unpacked, Fault> {
    let (reader, writer) = std::io::pipe().map_err(Fault::io("create a pipe"))?;
    let name = dir.display().to_string();
    let thread = std::thread::Builder::new().name("image-walk".to_owned());
    let walker =
        thread.spawn(move || walk::write_tar(&dir, form, writer)).map_err(Fault::io("start a thread"))?;
    let unpacked = unpack(reader, tree, rules);
    let walked = walker.join().map_err(|_| Fault::refused(format!("{name} cannot be read")))?;
    // An error of the reader closes the pipe and fails the writer too: the reader's error is the cause.
    let unpacked = unpacked?;
    walked.map_err(Fault::io(format!("read {name}")))?;
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;
    use std::sync::Arc;

    use rustix::fs::{XattrFlags, getxattr, setxattr};

    use super::*;
    use crate::limits::{Budget, ImageLimits};

    fn copy(dir: &Path, form: DirectoryForm, into: &Path, whiteouts: Whiteouts) -> Result<Unpacked, Fault> {
        let budget = Arc::new(Budget::new(ImageLimits::default()));
        copy_dir(dir.to_path_buf(), form, into, &Rules { whiteouts, budget, cancelled: Arc::default() })
    }

    #[test]
    fn an_upper_directory_keeps_its_whiteouts() {
        let dir = tempfile::tempdir().unwrap();
        let (upper, first, second) =
            (dir.path().join("upper"), dir.path().join("first"), dir.path().join("second"));
        for made in [&upper.join("opaque"), &first, &second] {
            std::fs::create_dir_all(made).unwrap();
        }
        // overlayfs links one device under the names of all whiteouts.
        assert!(
            Command::new("mknod").arg(upper.join("gone")).args(["c", "0", "0"]).status().unwrap().success()
        );
        std::fs::hard_link(upper.join("gone"), upper.join("opaque/gone")).unwrap();
        setxattr(upper.join("opaque"), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        setxattr(upper.join("opaque"), "trusted.overlay.redirect", b"/etc", XattrFlags::empty()).unwrap();
        let copied = copy(&upper, DirectoryForm::Upper, &first, Whiteouts::Honour).unwrap();
        for gone in ["gone", "opaque/gone"] {
            assert_eq!(first.join(gone).symlink_metadata().unwrap().rdev(), 0);
        }
        let mut value = [0; 8];
        assert_eq!(getxattr(first.join("opaque"), "trusted.overlay.opaque", &mut value[..]), Ok(1));
        assert!(getxattr(first.join("opaque"), "trusted.overlay.redirect", &mut value[..]).is_err());
        // A layer has the form of an upper directory: a copy of it is identical.
        assert_eq!(copy(&first, DirectoryForm::Upper, &second, Whiteouts::Honour).unwrap(), copied);
        let refused =
            copy(&upper, DirectoryForm::Root, &dir.path().join("second"), Whiteouts::Refuse).unwrap_err();
        assert!(refused.to_string().contains("is a device"), "{refused}");
    }
}
