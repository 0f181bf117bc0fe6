//! Layouts, tars and directories of this host; list, removal and garbage collection.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use image::{Collected, FailureKind, ImageSource};

use crate::support::*;

fn write_layout(dir: &Path, images: &[(&str, &TestImage)]) {
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| std::fs::write(blobs.join(&sha256(bytes)[7..]), bytes).unwrap();
    let mut entries = vec![];
    for (tag, image) in images {
        image.layers.iter().for_each(|layer| put(&layer.packed));
        put(&image.config());
        let manifest = image.manifest().to_string();
        put(manifest.as_bytes());
        entries.push(serde_json::json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": sha256(manifest.as_bytes()),
            "size": manifest.len(), "annotations": {"org.opencontainers.image.ref.name": tag}}));
    }
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    std::fs::write(
        dir.join("index.json"),
        serde_json::json!({"schemaVersion": 2, "manifests": entries}).to_string(),
    )
    .unwrap();
}

fn app(text: &str) -> TestImage {
    TestImage::new(vec![
        Layer::new(&tar(&[("bin/", b""), ("bin/sh", b"sh")]), Packing::Gzip),
        Layer::new(&tar(&[("app", text.as_bytes())]), Packing::Zstd),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layout_gives_the_image_by_tag_and_by_digest() {
    let store = TestStore::new();
    let layout = store.dir.path().join("layout");
    let (one, two) = (app("one"), app("two"));
    write_layout(&layout, &[("one", &one), ("two", &two)]);
    let at = layout.display();
    let images = store.open(&[]);
    let import = async |name: &str, source: String| {
        images.import(name, source.parse::<ImageSource>().unwrap(), silent()).await
    };
    let digest = sha256(two.manifest().to_string().as_bytes());
    let by_tag = import("tag", format!("oci-layout:{at}:one")).await.unwrap();
    assert_eq!(std::fs::read_to_string(by_tag.layers[0].join("app")).unwrap(), "one");
    assert_eq!(by_tag.config.workdir.as_deref(), Some("/srv"));
    let by_digest = import("digest", format!("oci-layout:{at}@{digest}")).await.unwrap();
    assert_eq!(std::fs::read_to_string(by_digest.layers[0].join("app")).unwrap(), "two");
    assert_eq!(by_digest.digest, digest);
    assert_eq!(by_tag.layers[1], by_digest.layers[1]);
    for (source, reason) in
        [(format!("oci-layout:{at}:three"), "it has one, two"), (format!("oci-layout:{at}"), "without a tag")]
    {
        let e = import("x", source).await.unwrap_err();
        assert_eq!(failures(&e)[0].kind, FailureKind::NotFound);
        assert!(e.to_string().contains(reason), "{e}");
    }
    let before = store.layer_names();
    let bad = app("bad");
    write_layout(&layout, &[("bad", &bad)]);
    let blob = layout.join("blobs/sha256").join(&bad.layers[1].digest()[7..]);
    std::fs::write(&blob, &app("evil").layers[1].packed).unwrap();
    let e = import("x", format!("oci-layout:{at}")).await.unwrap_err();
    assert_eq!(failures(&e)[0].kind, FailureKind::Refused);
    std::fs::remove_file(&blob).unwrap();
    let e = import("x", format!("oci-layout:{at}")).await.unwrap_err();
    assert_eq!(failures(&e)[0].kind, FailureKind::NotFound);
    assert_eq!(store.layer_names(), before);
    store.assert_no_work();
}

/// A small root with special entries.
fn make_root(dir: &Path) {
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    std::fs::create_dir_all(dir.join("empty/deep")).unwrap();
    std::fs::write(dir.join("bin/sh"), noise(5_000)).unwrap();
    std::fs::hard_link(dir.join("bin/sh"), dir.join("bin/bash")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).unwrap();
    std::fs::write(dir.join("bin").join("l".repeat(180)), "long").unwrap();
    rustix::fs::setxattr(dir.join("bin/sh"), "user.note", b"n", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(dir.join("bin"), "trusted.overlay.opaque", b"y", rustix::fs::XattrFlags::empty())
        .unwrap();
    std::os::unix::fs::chown(dir.join("empty"), Some(33), Some(44)).unwrap();
    let fifo = Command::new("mkfifo").arg(dir.join("fifo")).status().unwrap();
    assert!(fifo.success());
    drop(std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_copied_and_its_layer_is_content_addressed() {
    let store = TestStore::new();
    let root = store.dir.path().join("root");
    make_root(&root);
    let images = store.open(&[("dir", &[&format!("rootfs:{}", root.display())])]);
    let got = images.ensure("dir", silent()).await.unwrap();
    let layer = &got.layers[0];
    assert_eq!(names_in(layer), ["bin", "empty", "fifo", "link"]);
    let ino = |path: &str| layer.join(path).metadata().unwrap().ino();
    assert_eq!(ino("bin/sh"), ino("bin/bash"));
    assert_ne!(ino("bin/sh"), root.join("bin/sh").metadata().unwrap().ino());
    assert_eq!(std::fs::read(layer.join("bin/sh")).unwrap(), noise(5_000));
    assert_eq!(std::fs::read_link(layer.join("link")).unwrap(), Path::new("/etc/passwd"));
    let empty = layer.join("empty").metadata().unwrap();
    assert_eq!((empty.uid(), empty.gid()), (33, 44));
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(layer.join("bin/sh"), "user.note", &mut value[..]), Ok(1));
    assert!(rustix::fs::getxattr(layer.join("bin"), "trusted.overlay.opaque", &mut value[..]).is_err());
    // The same content gives the same layer, changed content another.
    let again = images.pull("dir", silent()).await.unwrap();
    assert_eq!((&again.layers, &again.digest), (&got.layers, &got.digest));
    std::fs::write(root.join("bin/new"), "new").unwrap();
    let changed = images.pull("dir", silent()).await.unwrap();
    assert_ne!(changed.layers, got.layers);
    store.assert_no_work();
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_and_plain_tars_give_one_layer() {
    let store = TestStore::new();
    let root = store.dir.path().join("root");
    make_root(&root);
    let at = |name: &str| store.dir.path().join(name);
    let tar = |name: &str, flag: &str| {
        let status = Command::new("tar")
            .args(["--xattrs", "-C"])
            .arg(&root)
            .arg(flag)
            .arg("-cf")
            .arg(at(name))
            .arg(".")
            .status();
        assert!(status.unwrap().success());
    };
    tar("a.tar", "--format=pax");
    tar("a.tar.gz", "-z");
    tar("a.tar.zst", "--zstd");
    let images = store.open(&[]);
    for name in ["a.tar", "a.tar.gz", "a.tar.zst"] {
        let source: ImageSource = format!("rootfs:{}", at(name).display()).parse().unwrap();
        let got = images.import(name, source, silent()).await.unwrap();
        assert_eq!(names_in(&got.layers[0]), ["bin", "empty", "fifo", "link"]);
        assert_eq!(got.config.env[0].0, "PATH");
    }
    // The compressions of one tar give one layer.
    assert_eq!(images.get("a.tar.gz").unwrap().layers, images.get("a.tar.zst").unwrap().layers);
    assert_eq!(store.layer_names().len(), 2);
    for (name, text) in [("notar", "no tar at all".repeat(100).into_bytes()), ("noroot", tar_of_nothing())] {
        std::fs::write(at(name), text).unwrap();
        let source: ImageSource = format!("rootfs:{}", at(name).display()).parse().unwrap();
        let e = images.import("x", source, silent()).await.unwrap_err();
        assert_eq!(failures(&e)[0].kind, FailureKind::Refused, "{e}");
    }
    let device = store.dir.path().join("device");
    std::fs::create_dir_all(device.join("bin")).unwrap();
    assert!(Command::new("mknod").arg(device.join("null")).args(["c", "1", "3"]).status().unwrap().success());
    let e = images.import("x", ImageSource::Rootfs { path: device }, silent()).await.unwrap_err();
    assert!(e.to_string().contains("null' is a device"), "{e}");
    store.assert_no_work();
}

fn tar_of_nothing() -> Vec<u8> {
    tar(&[("readme", b"no root")])
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_without_images_and_sandboxes_are_collected() {
    let store = TestStore::new();
    let layout = store.dir.path().join("layout");
    write_layout(&layout, &[("one", &app("one")), ("two", &app("two"))]);
    let source = |tag: &str| format!("oci-layout:{}:{tag}", layout.display());
    let images = store.open(&[("one", &[&source("one")]), ("two", &[&source("two")])]);
    let one = images.ensure("one", silent()).await.unwrap();
    let two = images.ensure("two", silent()).await.unwrap();
    let names =
        |images: &[std::sync::Arc<image::Image>]| images.iter().map(|i| i.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&images.list().await.unwrap()), ["one", "two"]);
    assert_eq!(store.layer_names().len(), 3);
    let nobody = HashSet::new();
    assert_eq!(images.collect_garbage(&nobody).await.unwrap(), Collected::Done { layers: 0 });
    assert!(images.remove("one").await.unwrap());
    assert!(!images.remove("one").await.unwrap());
    assert!(images.get("one").is_none());
    // First a sandbox uses the layer, then not. The shared layer stays for the other image.
    let in_use: HashSet<PathBuf> = one.layers.iter().cloned().collect();
    assert_eq!(images.collect_garbage(&in_use).await.unwrap(), Collected::Done { layers: 0 });
    assert_eq!(images.collect_garbage(&nobody).await.unwrap(), Collected::Done { layers: 1 });
    assert!(!one.layers[0].exists());
    assert!(two.layers.iter().all(|layer| layer.exists()));
    store.assert_no_work();
    // A removed image is pulled again on request, and so is one with missing layers.
    images.ensure("one", silent()).await.unwrap();
    std::fs::remove_dir_all(&one.layers[0]).unwrap();
    assert!(images.ensure("one", silent()).await.unwrap().layers[0].exists());
}
