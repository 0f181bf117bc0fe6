//! Pulls from a real registry, directly and through a proxy that counts requests and injects failures.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use image::{FailureKind, ImageError, ImageLimits, Options, PullReport, PullStep};

use crate::support::*;

fn base_tar() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut put = |kind, name: &str, mode, uid, data: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(uid);
        header.set_mtime(1_600_000_000);
        header.set_size(data.len() as u64);
        tar.append_data(&mut header, name, data).unwrap();
    };
    use tar::EntryType::{Directory, Regular};
    for dir in ["bin/", "etc/", "opaque/", "keep/"] {
        put(Directory, dir, 0o755, 0, b"");
    }
    put(Regular, "bin/tool", 0o4755, 0, &noise(300_000));
    put(Regular, "etc/gone", 0o644, 0, b"below");
    put(Regular, "opaque/below", 0o644, 0, b"below");
    put(Regular, "keep/below", 0o640, 1_000, b"below");
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Link);
    link.set_mode(0o4755);
    link.set_uid(0);
    link.set_gid(0);
    link.set_mtime(0);
    link.set_size(0);
    tar.append_link(&mut link, "bin/alias", "bin/tool").unwrap();
    tar.append_pax_extensions([("SCHILY.xattr.user.kind", &b"test"[..])]).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(1);
    tar.append_data(&mut header, "etc/noted", &b"x"[..]).unwrap();
    tar.into_inner().unwrap()
}

fn three_layers() -> TestImage {
    let removing = tar(&[
        ("etc/.wh.gone", b""),
        ("opaque/", b""),
        ("opaque/.wh..wh..opq", b""),
        ("opaque/above", b"above"),
    ]);
    let top = tar(&[("keep/above", b"above"), ("etc/late", b"late")]);
    TestImage::new(vec![
        Layer::new(&base_tar(), Packing::Gzip),
        Layer::new(&removing, Packing::Zstd),
        Layer::new(&top, Packing::Plain),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_gives_the_image_of_this_architecture() {
    let registry = Registry::start().await;
    let image = three_layers();
    let mine = registry.push_image("team/app:mine", &image).await;
    let foreign =
        TestImage { architecture: "s390x", layers: vec![Layer::new(&tar(&[("s390", b"x")]), Packing::Gzip)] };
    let other = registry.push_image("team/app:other", &foreign).await;
    let entry = |digest: &str, image: &TestImage| {
        let size = image.manifest().to_string().len();
        serde_json::json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": size,
            "platform": {"os": "linux", "architecture": image.architecture}})
    };
    let index = serde_json::json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry(&other, &foreign), entry(&mine, &image)]});
    let digest = registry.push("team/app:1", &[], &index).await;

    let store = TestStore::new();
    let source = format!("127.0.0.1:{}/team/app:1", registry.port);
    let images = store.open(&[("app", &[&source])]);
    let reports: Arc<Mutex<Vec<PullReport>>> = Arc::default();
    let sink = reports.clone();
    assert!(images.get("app").is_none());
    let got = images.ensure("app", Arc::new(move |p| sink.lock().unwrap().push(p))).await.unwrap();
    assert_eq!(
        (got.name.as_str(), got.source.as_str(), got.digest.as_str()),
        ("app", source.as_str(), digest.as_str())
    );
    assert_eq!(got.stand_in, None);
    assert_eq!(got.config.workdir.as_deref(), Some("/srv"));
    assert_eq!(got.config.user.as_deref(), Some("app"));
    assert_eq!(got.config.env[0], ("PATH".to_owned(), "/opt/bin:/bin".to_owned()));
    assert!(got.size_bytes > 300_000, "{}", got.size_bytes);
    let want: Vec<String> = image.layers.iter().rev().map(|l| l.diff_id.replace("sha256:", "")).collect();
    let have: Vec<_> =
        got.layers.iter().map(|l| l.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(have, want);
    let total = image.layers.iter().map(|l| l.packed.len()).sum::<usize>() + image.config().len();
    let reports = reports.lock().unwrap().clone();
    let last = reports.iter().rfind(|p| p.total_bytes > 0).unwrap();
    assert_eq!((last.done_bytes, last.total_bytes), (total as u64, total as u64));
    assert!(reports.iter().all(|p| p.done_bytes <= p.total_bytes && p.image == "app"));
    store.assert_no_work();

    let root = Mounted::new(&got.layers);
    let text = |path: &str| std::fs::read_to_string(root.path(path)).unwrap();
    assert!(!root.path("etc/gone").exists());
    assert_eq!(names_in(&root.path("opaque")), ["above"]);
    assert_eq!(names_in(&root.path("keep")), ["above", "below"]);
    assert_eq!((text("keep/above"), text("etc/late")), ("above".to_owned(), "late".to_owned()));
    let (tool, alias) =
        (root.path("bin/tool").metadata().unwrap(), root.path("bin/alias").metadata().unwrap());
    assert_eq!(tool.ino(), alias.ino());
    assert_eq!((tool.permissions().mode() & 0o7777, tool.mtime()), (0o4755, 1_600_000_000));
    assert_eq!(root.path("keep/below").metadata().unwrap().uid(), 1_000);
    let mut value = [0; 16];
    let n = rustix::fs::getxattr(root.path("etc/noted"), "user.kind", &mut value[..]).unwrap();
    assert_eq!(&value[..n], b"test");
    drop(root);

    // The image is found again, also by its digest.
    drop(images);
    let images = store.open(&[("app", &[&source])]);
    assert_eq!(images.get("app").unwrap(), got);
    let pinned = format!("127.0.0.1:{}/team/app@{mine}", registry.port);
    let by_digest = images.import("pinned", pinned.parse().unwrap(), silent()).await.unwrap();
    assert_eq!((by_digest.digest.as_str(), &by_digest.layers), (mine.as_str(), &got.layers));
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_manifests_and_repeated_layers_are_accepted() {
    let registry = Registry::start().await;
    let (a, b) = (
        Layer::new(&tar(&[("bin/", b""), ("a", b"a")]), Packing::Gzip),
        Layer::new(&tar(&[("b", b"b")]), Packing::Gzip),
    );
    let image = TestImage::new(vec![a.clone(), b, a]);
    let docker = image
        .manifest()
        .to_string()
        .replace("vnd.oci.image.manifest.v1+json", "vnd.docker.distribution.manifest.v2+json")
        .replace("vnd.oci.image.config.v1+json", "vnd.docker.container.image.v1+json")
        .replace("vnd.oci.image.layer.v1.tar+gzip", "vnd.docker.image.rootfs.diff.tar.gzip");
    let config = image.config();
    let mut blobs: Vec<&[u8]> = image.layers.iter().map(|l| l.packed.as_slice()).collect();
    blobs.push(&config);
    registry.push("docker:1", &blobs, &serde_json::from_str(&docker).unwrap()).await;
    let store = TestStore::new();
    let images = store.open(&[("d", &[&format!("localhost:{}/docker:1", registry.port)])]);
    let got = images.ensure("d", silent()).await.unwrap();
    assert_eq!(got.layers.len(), 2);
    let root = Mounted::new(&got.layers);
    assert_eq!(names_in(&root.path("")), ["a", "b", "bin"]);
    // Layers below an opaque one are not mounted.
    let hiding = Layer::new(&tar(&[(".wh..wh..opq", b""), ("bin/", b""), ("only", b"o")]), Packing::Gzip);
    let top = Layer::new(&tar(&[("top", b"t")]), Packing::Gzip);
    registry.push_image("hiding:1", &TestImage::new(vec![right_layer(), hiding, top])).await;
    let source = format!("127.0.0.1:{}/hiding:1", registry.port);
    let got = images.import("hiding", source.parse().unwrap(), silent()).await.unwrap();
    let root = Mounted::new(&got.layers);
    assert_eq!(
        (names_in(&root.path("")), names_in(&root.path("bin")).len()),
        (vec!["bin".to_owned(), "only".to_owned(), "top".to_owned()], 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_digest_is_refused_and_leaves_nothing() {
    let registry = Registry::start().await;
    let image = three_layers();
    registry.push_image("bad/blob:1", &image).await;
    registry.tamper(&image.layers[1].digest());
    let mut lying = TestImage::new(vec![Layer::new(&tar(&[("bin/", b"")]), Packing::Gzip)]);
    lying.layers[0].diff_id = sha256(b"something else");
    registry.push_image("bad/diff:1", &lying).await;
    let mut short = TestImage::new(vec![Layer::new(&tar(&[("bin/", b"")]), Packing::Gzip)]);
    let right = short.layers[0].clone();
    short.layers.push(right);
    let mut manifest = short.manifest();
    manifest["layers"].as_array_mut().unwrap().pop();
    registry.push("bad/count:1", &[&short.layers[0].packed, &short.config()], &manifest).await;
    let mut hostile = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..8].copy_from_slice(b"../../up");
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_cksum();
    hostile.append(&header, std::io::empty()).unwrap();
    let hostile = Layer::new(&hostile.into_inner().unwrap(), Packing::Gzip);
    registry.push_image("bad/path:1", &TestImage::new(vec![right_layer(), hostile])).await;

    let store = TestStore::new();
    for (name, reason) in
        [("blob", "igest"), ("diff", "does not match its digest"), ("count", "1 layers"), ("path", "'..'")]
    {
        let images = store.open(&[("x", &[&format!("127.0.0.1:{}/bad/{name}:1", registry.port)])]);
        let e = images.ensure("x", silent()).await.unwrap_err();
        let failure = &failures(&e)[0];
        assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
        assert!(failure.to_string().contains(reason), "{failure}");
        assert!(images.get("x").is_none());
        store.assert_empty();
    }
}

fn right_layer() -> Layer {
    Layer::new(&tar(&[("bin/", b""), ("bin/right", b"right")]), Packing::Gzip)
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_limits_are_enforced() {
    let registry = Registry::start().await;
    let big = Layer::new(&tar(&[("bin/", b""), ("bin/zeros", &[0; 300_000])]), Packing::Gzip);
    registry.push_image("big:1", &TestImage::new(vec![right_layer(), big])).await;
    let store = TestStore::new();
    let limits = ImageLimits { unpacked_bytes: 200_000, ..ImageLimits::default() };
    let images = store.open_with(
        &[("x", &[&format!("127.0.0.1:{}/big:1", registry.port)])],
        Options { limits, ..store.options() },
    );
    let e = images.ensure("x", silent()).await.unwrap_err();
    assert_eq!(failures(&e)[0].kind, FailureKind::TooBig);
    assert!(e.to_string().contains("200000 bytes"), "{e}");
    store.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_registry_gets_the_login_of_config_json() {
    let registry = Registry::start_protected().await;
    registry.push_image("private:1", &TestImage::new(vec![right_layer()])).await;
    let store = TestStore::new();
    let images = store.open(&[("x", &[&format!("127.0.0.1:{}/private:1", registry.port)])]);
    let e = images.ensure("x", silent()).await.unwrap_err();
    assert_eq!(failures(&e)[0].kind, FailureKind::Denied, "{e}");
    assert!(e.to_string().contains("without a login, which") && e.to_string().contains("config.json"), "{e}");
    use base64::Engine;
    let config = |password: &str| {
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{password}"));
        let config = serde_json::json!({"auths": {format!("127.0.0.1:{}", registry.port): {"auth": auth}}});
        std::fs::write(store.dir.path().join("config.json"), config.to_string()).unwrap();
    };
    config("wrong");
    let e = images.ensure("x", silent()).await.unwrap_err();
    assert_eq!(failures(&e)[0].kind, FailureKind::Denied, "{e}");
    assert!(e.to_string().contains("with the login of"), "{e}");
    config(PASSWORD);
    images.ensure("x", silent()).await.unwrap();
    assert_eq!(store.layer_names().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_share_one_pull_and_images_share_layers() {
    let registry = Registry::start().await;
    let (shared, own) = (right_layer(), Layer::new(&tar(&[("own", b"own")]), Packing::Gzip));
    registry.push_image("one:1", &TestImage::new(vec![shared.clone()])).await;
    registry.push_image("two:1", &TestImage::new(vec![shared.clone(), own.clone()])).await;
    let proxy = Proxy::counting(registry.port).await;
    let store = TestStore::new();
    let source = |name: &str| format!("127.0.0.1:{}/{name}:1", proxy.port);
    let images = store.open(&[("one", &[&source("one")]), ("two", &[&source("two")])]);
    // One caller stops waiting at its first report; the pull continues for the others.
    let (reporter, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let quitter = {
        let images = images.clone();
        tokio::spawn(async move {
            images
                .ensure(
                    "one",
                    Arc::new(move |_| {
                        let _ = reporter.send(());
                    }),
                )
                .await
        })
    };
    reports.recv().await.unwrap();
    quitter.abort();
    let mut waiting = tokio::task::JoinSet::new();
    for name in ["one", "two", "one", "two", "one"] {
        let images = images.clone();
        waiting.spawn(async move { images.ensure(name, silent()).await.unwrap() });
    }
    let got = waiting.join_all().await;
    assert!(got.iter().all(|image| image.layers.len() == if image.name == "one" { 1 } else { 2 }));
    for layer in [&shared, &own] {
        assert_eq!(
            proxy.count(&format!("GET /v2/{}/blobs/{}", "two", layer.digest()))
                + proxy.count(&format!("GET /v2/one/blobs/{}", layer.digest())),
            1
        );
    }
    assert_eq!(proxy.count("/v2/one/manifests/"), 1);
    assert_eq!(store.layer_names().len(), 2);
    // An existing image is not requested again.
    let before = proxy.seen.lock().unwrap().len();
    images.ensure("one", silent()).await.unwrap();
    assert_eq!(proxy.seen.lock().unwrap().len(), before);
    store.assert_no_work();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_progress_of_a_pull_can_be_read() {
    let registry = Registry::start().await;
    let big = Layer::new(&tar(&[("bin/", b""), ("big", &noise(500_000))]), Packing::Plain);
    registry.push_image("app:1", &TestImage::new(vec![big.clone()])).await;
    let blob = big.digest();
    let stall = move |line: &str| if line.contains(&blob) { Action::Stall(200_000) } else { Action::Pass };
    let proxy = Proxy::start(registry.port, stall).await;
    let store = TestStore::new();
    let images = store.open(&[("app", &[&format!("127.0.0.1:{}/app:1", proxy.port)])]);
    assert_eq!(images.pulls(), []);
    let waiting = tokio::spawn({
        let images = images.clone();
        async move { images.ensure("app", silent()).await }
    });
    let began = Instant::now();
    while images.pulls().first().is_none_or(|pull| pull.done_bytes < 100_000) {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", images.pulls());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let pull = images.pulls().remove(0);
    assert_eq!((pull.image.as_str(), pull.stage), ("app", PullStep::Fetching));
    assert!(pull.done_bytes < 200_000 && pull.total_bytes > 500_000, "{pull:?}");
    assert!(images.find("app").await.unwrap().is_none() && images.list().await.unwrap().is_empty());
    images.close().await;
    assert!(waiting.await.unwrap().is_err());
    assert_eq!(images.pulls(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_pull_does_not_affect_a_shared_layer() {
    let registry = Registry::start().await;
    let (shared, broken) = (right_layer(), Layer::new(&tar(&[("x", &noise(100_000))]), Packing::Plain));
    registry.push_image("good:1", &TestImage::new(vec![shared.clone()])).await;
    registry.push_image("bad:1", &TestImage::new(vec![shared, broken.clone()])).await;
    registry.tamper(&broken.digest());
    let store = TestStore::new();
    let source = |name: &str| format!("127.0.0.1:{}/{name}:1", registry.port);
    let images = store.open(&[("good", &[&source("good")]), ("bad", &[&source("bad")])]);
    let (good, bad) = tokio::join!(images.ensure("good", silent()), images.ensure("bad", silent()));
    bad.unwrap_err();
    assert_eq!(std::fs::read_to_string(good.unwrap().layers[0].join("bin/right")).unwrap(), "right");
    assert_eq!(store.layer_names().len(), 1);
    store.assert_no_work();
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_failures_are_retried_and_transfers_resumed() {
    let registry = Registry::start().await;
    let layer = Layer::new(&tar(&[("bin/", b""), ("bin/big", &noise(600_000))]), Packing::Plain);
    registry.push_image("app:1", &TestImage::new(vec![layer.clone()])).await;
    let blob = format!("/blobs/{}", layer.digest());
    let (mut pings, mut manifests, mut blobs) = (0, 0, 0);
    let proxy = Proxy::start(registry.port, move |line| {
        let turn = |n: &mut usize, faults: &[Action]| {
            *n += 1;
            faults.get(*n - 1).copied().unwrap_or(Action::Pass)
        };
        if line.contains("/manifests/") {
            turn(&mut manifests, &[Action::Status(503), Action::Hang, Action::Status(429)])
        } else if line.contains(&blob) {
            turn(
                &mut blobs,
                &[
                    Action::Status(500),
                    Action::Cut(200_000),
                    Action::Cut(100_000),
                    Action::Hang,
                    Action::Cut(10),
                ],
            )
        } else {
            turn(&mut pings, &[Action::Hang])
        }
    })
    .await;
    let store = TestStore::new();
    let images = store.open(&[("x", &[&format!("127.0.0.1:{}/app:1", proxy.port)])]);
    let got = images.ensure("x", silent()).await.unwrap();
    assert_eq!(std::fs::read(got.layers[0].join("bin/big")).unwrap(), noise(600_000));
    let seen = proxy.seen.lock().unwrap().clone();
    let ranges: Vec<_> = seen.iter().filter(|line| line.contains("ange: bytes=")).collect();
    assert!(ranges.len() >= 2, "{seen:#?}");
    store.assert_no_work();
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_failures_end_the_pull() {
    let registry = Registry::start().await;
    let layer = right_layer();
    registry.push_image("app:1", &TestImage::new(vec![layer])).await;
    let proxy = Proxy::start(registry.port, |line| {
        if line.contains("/blobs/") { Action::Status(502) } else { Action::Pass }
    })
    .await;
    let store = TestStore::new();
    let images = store.open(&[("x", &[&format!("127.0.0.1:{}/app:1", proxy.port)])]);
    let e = images.ensure("x", silent()).await.unwrap_err();
    assert_eq!(failures(&e)[0].kind, FailureKind::Io);
    assert!(e.to_string().contains("502"), "{e}");
    assert_eq!(proxy.count("/blobs/"), 5);
    store.assert_empty();
    // A refusal is not retried.
    let missing = format!("127.0.0.1:{}/nothing:1", proxy.port);
    let e = images.import("y", missing.parse().unwrap(), silent()).await.unwrap_err();
    assert_eq!(failures(&e)[0].kind, FailureKind::NotFound, "{e}");
    assert_eq!(proxy.count("/v2/nothing/manifests/"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_registry_fails_fast_and_each_source_has_a_reason() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // A registry that accepts connections and does not respond.
    let silent_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = silent_listener.local_addr().unwrap().port();
    let store = TestStore::new();
    let (refusing, hanging) = (format!("127.0.0.1:{nobody}/a:1"), format!("127.0.0.1:{mute}/a:1"));
    let mut options = store.options();
    options.registry.connect_timeout = Duration::from_millis(300);
    let names: &[(&str, &[&str])] = &[
        ("a", &[&refusing, &hanging, "rootfs:/nonexistent/root.tar", "oci-layout:/nonexistent"]),
        ("b", &[&hanging]),
        ("none", &[]),
    ];
    let images = store.open_with(names, options);
    let e = images.ensure("a", silent()).await.unwrap_err();
    let kinds: Vec<_> = failures(&e).iter().map(|f| f.kind).collect();
    use FailureKind::{NotFound, Unreachable};
    assert_eq!(kinds, [Unreachable, Unreachable, NotFound, NotFound], "{e}");
    for text in [refusing.as_str(), hanging.as_str(), "/nonexistent/root.tar", "no answer within 300 ms"] {
        assert!(e.to_string().contains(text), "{e}");
    }
    silent_listener.set_nonblocking(true).unwrap();
    let new_connections = || std::iter::from_fn(|| silent_listener.accept().ok()).count();
    assert!(new_connections() > 0);
    let e = images.ensure("b", silent()).await.unwrap_err();
    assert_eq!(new_connections(), 0, "the registry was contacted again");
    assert!(e.to_string().contains("from an attempt in the last 300 s"), "{e}");
    // An explicit pull contacts the registry again.
    let e = images.pull("b", silent()).await.unwrap_err();
    assert!(e.to_string().contains("no answer within"), "{e}");
    assert!(matches!(images.ensure("none", silent()).await, Err(ImageError::NoSource { .. })));
    let unknown = images.ensure("c", silent()).await.unwrap_err();
    let unknown = unknown.to_string();
    assert!(unknown.contains("a, b") && !unknown.contains("none"), "an image without a source: {unknown}");
    store.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_replaces_the_image_and_a_failed_one_does_not() {
    let registry = Registry::start().await;
    registry.push_image("app:1", &TestImage::new(vec![right_layer()])).await;
    let spare = tempfile::tempdir().unwrap();
    std::fs::create_dir(spare.path().join("bin")).unwrap();
    let store = TestStore::new();
    let source = format!("127.0.0.1:{}/app:1", registry.port);
    let images = store.open(&[("x", &[&source, &format!("rootfs:{}", spare.path().display())])]);
    let first = images.ensure("x", silent()).await.unwrap();
    registry
        .push_image("app:1", &TestImage::new(vec![Layer::new(&tar(&[("bin/new", b"n")]), Packing::Zstd)]))
        .await;
    assert_eq!(images.ensure("x", silent()).await.unwrap(), first);
    let second = images.pull("x", silent()).await.unwrap();
    assert_ne!(second.digest, first.digest);
    assert!(second.layers[0].join("bin/new").exists());
    drop(registry);
    // The next source would work, but would give another image.
    let e = images.pull("x", silent()).await.unwrap_err();
    assert_eq!(failures(&e).len(), 1, "{e}");
    assert_eq!(images.get("x").unwrap(), second);
}
