//! Pulls that clients have caused: quotas, sharing, refreshes, and the removal of what was not used for long.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use image::{ClientPull, Image, ImageError, Images, NamedBy, Options, RegistryOptions};
use rules::ImageReference;

use crate::support::*;

/// An image with one layer of about `bytes`, which no other one has.
fn image_of(name: &str, bytes: usize) -> TestImage {
    let mut content = noise(bytes);
    content.extend(name.as_bytes());
    TestImage::new(vec![Layer::new(&tar(&[("file", &content)]), Packing::Plain)])
}

/// Images of clients of a registry on loopback, which the operator lists.
fn open(store: &TestStore, port: u16) -> Images {
    let private_registries = vec![format!("127.0.0.1:{port}")];
    let registry = RegistryOptions { private_registries, ..store.options().registry };
    store.open_with(&[], Options { registry, ..store.options() })
}

fn reference(port: u16, name: &str) -> ImageReference {
    ImageReference::parse(&format!("127.0.0.1:{port}/{name}")).unwrap()
}

async fn pull(images: &Images, port: u16, name: &str, client: ClientPull) -> Result<Arc<Image>, ImageError> {
    images.import_for_client(&reference(port, name), client, silent()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_is_charged_to_its_account_and_refused_beyond_the_quota() {
    let registry = Registry::start().await;
    registry.push_image("small:1", &image_of("small", 50_000)).await;
    registry.push_image("large:1", &image_of("large", 500_000)).await;
    let proxy = Proxy::counting(registry.port).await;
    let store = TestStore::new();
    let images = open(&store, proxy.port);
    let quota = Arc::new(Quota::new(100_000));
    let small = pull(&images, proxy.port, "small:1", pull_of("one", &quota)).await.unwrap();
    assert_eq!((small.named_by, small.layer_bytes.len()), (NamedBy::Client, 1));
    let taken = quota.taken("one");
    assert!((50_000..100_000).contains(&taken), "{taken}");
    // An image on the host costs nothing.
    pull(&images, proxy.port, "small:1", pull_of("one", &quota)).await.unwrap();
    assert_eq!(quota.taken("one"), taken);

    let refused = pull(&images, proxy.port, "large:1", pull_of("one", &quota)).await.unwrap_err();
    assert!(
        matches!(&refused, ImageError::PullQuota { account, reached } if account == "one" && reached.allowed == 100_000),
        "{refused}"
    );
    assert!(refused.to_string().contains("images.pull_bytes_per_day"), "{refused}");
    // Its layer was not requested.
    assert!(quota.taken("one") < 100_000);
    let other = Arc::new(Quota::new(0));
    pull(&images, proxy.port, "large:1", pull_of("two", &other)).await.unwrap();
    assert!(other.taken("two") > 500_000);
    store.assert_no_work();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_leaves_space_free_on_the_host() {
    let registry = Registry::start().await;
    registry.push_image("app:1", &image_of("app", 1_000)).await;
    let proxy = Proxy::counting(registry.port).await;
    let store = TestStore::new();
    let images = open(&store, proxy.port);
    let client = ClientPull { min_free_bytes: u64::MAX, ..client() };
    let refused = pull(&images, proxy.port, "app:1", client).await.unwrap_err();
    assert_eq!(failures(&refused)[0].kind, image::FailureKind::Io, "{refused}");
    assert!(proxy.count("/blobs/") <= 1, "the layer was not requested");
    store.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_does_not_fail_by_the_quota_of_another() {
    let registry = Registry::start().await;
    registry.push_image("app:1", &image_of("app", 500_000)).await;
    let proxy = Proxy::counting(registry.port).await;
    let store = TestStore::new();
    let images = open(&store, proxy.port);
    let (none, enough) = (Arc::new(Quota::new(1_000)), Arc::new(Quota::new(0)));
    let (refused, pulled) = tokio::join!(
        pull(&images, proxy.port, "app:1", pull_of("one", &none)),
        pull(&images, proxy.port, "app:1", pull_of("two", &enough)),
    );
    assert!(matches!(refused, Err(ImageError::PullQuota { .. }) | Ok(_)), "{refused:?}");
    assert_eq!(pulled.unwrap().layers.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_of_an_account_are_limited_and_those_of_others_are_not() {
    // Accepts connections and never answers.
    let silent_registry = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent_registry.local_addr().unwrap().port();
    let store = TestStore::new();
    let registry = RegistryOptions {
        private_registries: vec![format!("127.0.0.1:{port}")],
        // All of them still wait when the last one begins, however busy the machine is.
        connect_timeout: Duration::from_secs(600),
        ..store.options().registry
    };
    let images = store.open_with(&[], Options { registry, ..store.options() });
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..16 {
        let images = images.clone();
        waiting.spawn(async move { pull(&images, port, &format!("app:{number}"), client()).await.map(drop) });
    }
    while images.pulls().len() < 16 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = pull(&images, port, "app:16", client()).await;
    assert!(matches!(refused, Err(ImageError::TooManyPulls { allowed: 16 })), "{refused:?}");
    // One that is being pulled is shared.
    let shared =
        tokio::time::timeout(Duration::from_millis(20), pull(&images, port, "app:1", client())).await;
    assert!(!matches!(shared, Ok(Err(ImageError::TooManyPulls { .. }))), "{shared:?}");
    let other = pull_of("two", &Arc::new(Quota::new(0)));
    let other = tokio::time::timeout(Duration::from_millis(20), pull(&images, port, "app:16", other)).await;
    assert!(other.is_err(), "it waits for the registry: {other:?}");
    images.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_stays_at_its_digest_until_it_is_pulled_again() {
    let registry = Registry::start().await;
    let first = registry.push_image("app:1", &image_of("first", 1_000)).await;
    let store = TestStore::new();
    let images = open(&store, registry.port);
    let beside = open(&store, registry.port);
    assert_eq!(pull(&images, registry.port, "app:1", client()).await.unwrap().digest, first);
    let second = registry.push_image("app:1", &image_of("second", 1_000)).await;
    assert_eq!(pull(&images, registry.port, "app:1", client()).await.unwrap().digest, first);
    let name = reference(registry.port, "app:1").to_string();
    // As the command line of the operator does.
    assert_eq!(beside.pull(&name, silent()).await.unwrap().digest, second);
    let current = images.find_current(&name).await.unwrap().unwrap();
    assert_eq!((&current.digest, current.named_by), (&second, NamedBy::Client));
    assert!(beside.remove(&name).await.unwrap());
    assert_eq!(images.find_current(&name).await.unwrap(), None);
    assert_eq!(images.get(&name), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_image_is_stored_under_its_digest() {
    let registry = Registry::start().await;
    let digest = registry.push_image("app:1", &image_of("app", 1_000)).await;
    let store = TestStore::new();
    let images = open(&store, registry.port);
    let pinned = pull(&images, registry.port, &format!("app@{digest}"), client()).await.unwrap();
    assert_eq!(pinned.digest, digest);
    let name = format!("127.0.0.1:{}/app@{digest}", registry.port);
    assert_eq!(pinned.name, name);
    // Another process finds it, too.
    let beside = open(&store, registry.port);
    assert_eq!(beside.find(&name).await.unwrap(), Some(pinned));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_recently_used_images_are_removed_and_used_ones_stay() {
    let registry = Registry::start().await;
    let store = TestStore::new();
    let images = open(&store, registry.port);
    for name in ["a:1", "b:1", "c:1", "d:1"] {
        registry.push_image(name, &image_of(name, 200_000)).await;
        let pulled = pull(&images, registry.port, name, client()).await.unwrap();
        images.mark_used(&pulled);
    }
    let get = |name: &str| images.get(&reference(registry.port, name).to_string());
    // The task of a pull lets go of its image after it has answered.
    for name in ["a:1", "b:1", "c:1", "d:1"] {
        while Arc::strong_count(&get(name).unwrap()) > 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    images.mark_used(&get("a:1").unwrap());
    let each = get("a:1").unwrap().size_bytes;
    assert_eq!(images.stored_bytes(), 4 * each);
    assert!(images.begin_eviction(4 * each).await.unwrap().is_none());

    // Held by a create, and used by a sandbox.
    let held = get("b:1").unwrap();
    let in_use: HashSet<_> = get("c:1").unwrap().layers.iter().cloned().collect();
    let eviction = images.begin_eviction(3 * each).await.unwrap().unwrap();
    assert_eq!(get("d:1"), None, "nobody can begin to use a candidate");
    assert_eq!(eviction.finish(&in_use).await.unwrap(), 1);
    assert_eq!(["a:1", "b:1", "c:1", "d:1"].map(|name| get(name).is_some()), [true, true, true, false]);
    assert_eq!((images.stored_bytes(), store.layer_names().len()), (3 * each, 3));
    assert!(held.layers[0].is_dir());
    // All others go, and a second attempt finds no more.
    let eviction = images.begin_eviction(0).await.unwrap().unwrap();
    assert_eq!(eviction.finish(&in_use).await.unwrap(), 1);
    assert_eq!(images.begin_eviction(0).await.unwrap().unwrap().finish(&in_use).await.unwrap(), 0);
    assert_eq!(["b:1", "c:1"].map(|name| get(name).is_some()), [true, true]);
    // One that is given up leaves the images as they were.
    drop(held);
    drop(images.begin_eviction(0).await.unwrap());
    assert_eq!(["b:1", "c:1"].map(|name| get(name).is_some()), [true, true]);
    // It can be pulled again.
    pull(&images, registry.port, "a:1", client()).await.unwrap();
    store.assert_no_work();
}

/// Otherwise an account could read a private layer of another one by a manifest that names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_private_layer_has_to_be_delivered_by_each_repository() {
    let registry = Registry::start().await;
    let secret = Layer::new(&tar(&[("bin/", b""), ("bin/secret", b"secret")]), Packing::Gzip);
    let mut forged = Layer::new(&tar(&[("x", b"x")]), Packing::Gzip);
    forged.diff_id.clone_from(&secret.diff_id);
    let image = TestImage::new(vec![secret.clone()]);
    for name in ["acme/app:1", "acme/app:2", "other/app:1"] {
        registry.push_image(name, &image).await;
    }
    registry.push_image("evil/app:1", &TestImage::new(vec![forged])).await;
    let proxy = Proxy::counting(registry.port).await;
    let store = TestStore::new();
    let images = open(&store, proxy.port);
    let transfers = || proxy.count(&format!("blobs/{}", secret.digest()));
    let first = pull(&images, proxy.port, "acme/app:1", client()).await.unwrap();
    let evil = pull(&images, proxy.port, "evil/app:1", client()).await.unwrap_err();
    assert_eq!(failures(&evil)[0].kind, image::FailureKind::Refused, "{evil}");
    assert_eq!(transfers(), 1);
    // The same repository has delivered it.
    pull(&images, proxy.port, "acme/app:2", client()).await.unwrap();
    assert_eq!(transfers(), 1);
    let other = pull(&images, proxy.port, "other/app:1", client()).await.unwrap();
    assert_eq!((transfers(), &other.layers, store.layer_names().len()), (2, &first.layers, 1));
    store.assert_no_work();
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_of_the_operators_images_are_for_all() {
    let registry = Registry::start().await;
    let base = Layer::new(&tar(&[("bin/", b""), ("bin/base", b"base")]), Packing::Gzip);
    for name in ["base:1", "acme/app:1"] {
        registry.push_image(name, &TestImage::new(vec![base.clone()])).await;
    }
    let proxy = Proxy::counting(registry.port).await;
    let store = TestStore::new();
    let images = open(&store, proxy.port);
    let name = reference(proxy.port, "base:1").to_string();
    images.import("base", name.parse().unwrap(), silent()).await.unwrap();
    let quota = Arc::new(Quota::new(0));
    pull(&images, proxy.port, "acme/app:1", pull_of("one", &quota)).await.unwrap();
    assert_eq!(proxy.count(&format!("blobs/{}", base.digest())), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_images_stay() {
    let registry = Registry::start().await;
    registry.push_image("app:1", &image_of("app", 10_000)).await;
    let store = TestStore::new();
    let images = open(&store, registry.port);
    let name = reference(registry.port, "app:1").to_string();
    images.import(&name, name.parse().unwrap(), silent()).await.unwrap();
    let eviction = images.begin_eviction(0).await.unwrap().unwrap();
    assert_eq!(eviction.finish(&HashSet::new()).await.unwrap(), 0);
    assert!(images.get(&name).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_registry_needs_its_login_and_no_other_gets_it() {
    let registry = Registry::start_protected().await;
    registry.push_image("app:1", &image_of("app", 1_000)).await;
    let store = TestStore::new();
    let images = open(&store, registry.port);
    let denied = pull(&images, registry.port, "app:1", client()).await.unwrap_err();
    assert_eq!(failures(&denied)[0].kind, image::FailureKind::Denied);
    let login = |host: &str| {
        use base64::Engine;
        let packed = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let text = serde_json::json!({ "auths": { host: { "auth": packed } } }).to_string();
        std::fs::write(store.dir.path().join("config.json"), text).unwrap();
    };
    // The login of another registry does not help.
    login("127.0.0.1:1");
    let denied = pull(&images, registry.port, "app:1", client()).await.unwrap_err();
    assert!(!denied.to_string().contains(PASSWORD), "{denied}");
    login(&format!("127.0.0.1:{}", registry.port));
    pull(&images, registry.port, "app:1", client()).await.unwrap();
}
