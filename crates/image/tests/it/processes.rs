//! Two processes on one store, and one that is killed in the middle of a pull.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use image::{Catalogue, Collected, Images, Options};

use crate::support::*;

const ROOT: &str = "IMAGE_TEST_ROOT";
const SOURCE: &str = "IMAGE_TEST_SOURCE";

/// Not a test: the other process that the tests below start. Does nothing without their variables.
#[tokio::test(flavor = "multi_thread")]
async fn other_process() {
    if std::env::var_os(ROOT).is_none() {
        return;
    }
    let mut catalogue = Catalogue::default();
    catalogue.set("x", &[std::env::var(SOURCE).unwrap()]).unwrap();
    let root = std::env::var(ROOT).unwrap();
    let images = Images::open(root.as_ref(), catalogue, Options::default()).unwrap();
    images.ensure("x", silent()).await.unwrap();
}

fn other(store: &TestStore, source: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::other_process"])
        .env(ROOT, store.root())
        .env(SOURCE, source)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_pull_leaves_only_what_the_next_start_removes() {
    let registry = Registry::start().await;
    let (small, big) = (
        Layer::new(&tar(&[("bin/", b"")]), Packing::Gzip),
        Layer::new(&tar(&[("big", &noise(500_000))]), Packing::Plain),
    );
    registry.push_image("app:1", &TestImage::new(vec![small, big.clone()])).await;
    let (stalled, mut has_stalled) = tokio::sync::mpsc::unbounded_channel();
    let blob = big.digest();
    let proxy = Proxy::start(registry.port, move |line| {
        if !line.contains(&blob) {
            return Action::Pass;
        }
        stalled.send(()).unwrap();
        Action::Stall(200_000)
    })
    .await;
    let store = TestStore::new();
    let mut child = other(&store, &format!("127.0.0.1:{}/app:1", proxy.port));
    tokio::time::timeout(Duration::from_secs(20), has_stalled.recv()).await.unwrap().unwrap();

    // While it pulls, this process neither sweeps its work nor collects.
    let source = format!("127.0.0.1:{}/app:1", registry.port);
    let images = store.open(&[("x", &[&source])]);
    assert_eq!(names_in(&store.root().join("tmp")).len(), 2);
    assert_eq!(images.collect_garbage(&HashSet::new()).await.unwrap(), Collected::Busy);
    drop(images);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names_in(&store.root().join("tmp")).len(), 1);
    let images = store.open(&[("x", &[&source])]);
    store.assert_empty();
    assert_eq!(names_in(&store.root().join("tmp")).len(), 1);
    assert_eq!(images.collect_garbage(&HashSet::new()).await.unwrap(), Collected::Done { layers: 0 });
    images.ensure("x", silent()).await.unwrap();
}

/// Processes of a build, by the work directory in their environment.
fn building_in(root: &std::path::Path) -> usize {
    let names =
        names_in("/proc".as_ref()).into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let marker = format!("TMPDIR={}", root.display());
    let environs = names.filter_map(|pid| std::fs::read(format!("/proc/{pid}/environ")).ok());
    environs.filter(|environ| String::from_utf8_lossy(environ).contains(&marker)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_build_ends_its_programs() {
    let store = TestStore::new();
    let mut child = other(&store, "debian:bookworm");
    let began = Instant::now();
    let until = async |what: &str, holds: &dyn Fn() -> bool| {
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let root = store.root();
    until("the build starts", &|| building_in(&root) > 4).await;
    child.kill().unwrap();
    child.wait().unwrap();
    until("its processes end", &|| building_in(&root) == 0).await;
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(root.to_str().unwrap()), "{mounts}");
    let _images = store.open(&[]);
    store.assert_empty();
    assert_eq!(names_in(&root.join("tmp")).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_closed_ends_its_build() {
    let store = TestStore::new();
    let images = store.open(&[("x", &["debian:bookworm"])]);
    let waiting = tokio::spawn({
        let images = images.clone();
        async move { images.ensure("x", silent()).await }
    });
    let root = store.root();
    let began = Instant::now();
    while building_in(&root) <= 4 {
        assert!(began.elapsed() < Duration::from_secs(30), "the build starts");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    images.close().await;
    assert!(waiting.await.unwrap().unwrap_err().to_string().contains("stopping"));
    while building_in(&root) > 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "its processes end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(images);
    assert_eq!(names_in(&root.join("tmp")), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_another_process_pulled_is_found() {
    let registry = Registry::start().await;
    registry
        .push_image("app:1", &TestImage::new(vec![Layer::new(&tar(&[("bin/", b"")]), Packing::Gzip)]))
        .await;
    let store = TestStore::new();
    let source = format!("127.0.0.1:{}/app:1", registry.port);
    let images = store.open(&[("x", &[&source])]);
    assert!(other(&store, &source).wait().unwrap().success());
    drop(registry);
    let importing = store.open(&[]);
    importing.ensure("x", silent()).await.unwrap();
    assert!(images.get("x").is_none());
    assert_eq!(images.list().await.unwrap().len(), 1);
    images.ensure("x", silent()).await.unwrap();
}
