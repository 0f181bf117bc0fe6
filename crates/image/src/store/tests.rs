use super::*;
use crate::client::NamedBy;

fn record(name: &str, layers: &[&str]) -> ImageRecord {
    ImageRecord {
        name: name.to_owned(),
        source: "rootfs:/x".to_owned(),
        digest: String::new(),
        layers: layers.iter().map(|id| (*id).to_owned()).collect(),
        config: crate::ImageConfig::default(),
        stand_in: None,
        versions: vec![],
        size_bytes: 0,
        layer_bytes: vec![],
        named_by: Some(NamedBy::Operator),
        audience: None,
        created_at: time::OffsetDateTime::UNIX_EPOCH,
    }
}

#[test]
fn only_work_areas_of_dead_processes_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let living = Store::open(dir.path()).unwrap();
    let work = living.scratch().unwrap();
    std::fs::create_dir_all(dir.path().join("tmp/pdead/w1/tree")).unwrap();
    std::fs::write(dir.path().join("tmp/stray"), "x").unwrap();
    let second = Store::open(dir.path()).unwrap();
    assert!(!dir.path().join("tmp/pdead").exists());
    assert!(!dir.path().join("tmp/stray").exists());
    assert!(work.path().exists());
    drop((second, work, living));
    assert_eq!(std::fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn records_with_missing_layers_and_malformed_records_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let id = "a".repeat(64);
    std::fs::create_dir(store.layer_path(&id)).unwrap();
    store.write_record(&record("good/one:1", &[&id])).unwrap();
    store.write_record(&record("lost", &[&"b".repeat(64)])).unwrap();
    store.write_record(&record("escaping", &["../layers"])).unwrap();
    std::fs::write(dir.path().join("images/half.json"), "{\"name\":").unwrap();
    std::fs::copy(dir.path().join("images/good%2fone%3a1.json"), dir.path().join("images/other.json"))
        .unwrap();
    let names: Vec<_> = store.records().unwrap().into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["good/one:1"]);
    assert!(store.record("good/one:1").is_some());
    assert!(store.record("lost").is_none());
}

#[test]
fn layers_are_reused_by_their_audience_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let private = Audience::Repository("ghcr.io/acme/app".to_owned());
    let audiences = [Some(Audience::Everyone), Some(private.clone()), None];
    let ids = ["a", "b", "c"].map(|letter| letter.repeat(64));
    for (id, audience) in ids.iter().zip(audiences) {
        std::fs::create_dir(store.layer_path(id)).unwrap();
        store.write_record(&ImageRecord { audience, ..record(&id[..1], &[id]) }).unwrap();
    }
    let reused = |audience: &Audience| {
        let layers = store.layers_for(audience).unwrap();
        ids.iter().filter(|id| layers.contains(*id)).map(|id| id[..1].to_owned()).collect::<String>()
    };
    assert_eq!(reused(&private), "ab");
    assert_eq!(reused(&Audience::Repository("ghcr.io/acme/other".to_owned())), "a");
    assert_eq!(reused(&Audience::Everyone), "a");
}

#[test]
fn an_image_that_a_client_of_an_earlier_version_named_is_not_the_operators() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let named_by = |name: &str, source: &str, named_by| {
        let source = source.to_owned();
        ImageRecord { source, named_by, ..record(name, &[]) }.into_image(&store).named_by
    };
    let reference = "ghcr.io/acme/app:1";
    assert_eq!(named_by(reference, reference, None), NamedBy::Client);
    assert_eq!(named_by("app", reference, None), NamedBy::Operator);
    assert_eq!(named_by(reference, reference, Some(NamedBy::Operator)), NamedBy::Operator);
}

#[test]
fn records_of_the_longest_names_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let long = |end: &str| format!("registry.example.com/{}{end}", "a/".repeat(115));
    store.write_record(&record(&long("b"), &[])).unwrap();
    assert_eq!(store.record(&long("b")).unwrap().name, long("b"));
    assert!(store.record(&long("c")).is_none());
    assert_eq!(store.records().unwrap().len(), 1);
    store.touch_record(&long("b")).unwrap();
    assert!(store.record_used(&long("b")).unwrap().elapsed().unwrap() < std::time::Duration::from_secs(60));
    assert!(store.remove_record(&long("b")).unwrap());
}

#[test]
fn an_existing_layer_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let id = "c".repeat(64);
    for text in ["first", "second"] {
        let work = store.scratch().unwrap();
        let tree = work.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("f"), text).unwrap();
        store.commit_layers(&[(id.clone(), tree)]).unwrap();
    }
    assert_eq!(std::fs::read_to_string(store.layer_path(&id).join("f")).unwrap(), "first");
}

#[test]
fn the_lock_is_shared_by_pulls_and_exclusive_for_removal() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (Store::open(dir.path()).unwrap(), Store::open(dir.path()).unwrap());
    let pulls = (one.lock_for_use().unwrap(), two.lock_for_use().unwrap());
    assert!(one.lock_for_removal().unwrap().is_none());
    drop(pulls);
    assert!(one.lock_for_removal().unwrap().is_some());
}

#[test]
fn a_build_is_found_while_its_layer_exists() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let id = "d".repeat(64);
    std::fs::create_dir(store.layer_path(&id)).unwrap();
    store.write_built("key", &id).unwrap();
    assert_eq!(store.built("key"), Some(id.clone()));
    assert_eq!(store.built("other"), None);
    drop(store.remove_layer(&id).unwrap());
    assert_eq!(store.built("key"), None);
    store.remove_stale_builds().unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("builds")).unwrap().count(), 0);
}
