//! Somebody who can write to the object store and lacks the secret of the hosts: replaces, moves and makes objects.

use super::*;

/// The first line of an object, and its content.
fn split(object: &[u8]) -> (String, &[u8]) {
    let end = object.iter().position(|byte| *byte == b'\n').unwrap();
    (String::from_utf8(object[..end].to_vec()).unwrap(), &object[end + 1..])
}

/// As an earlier release has written it.
fn without_code(object: &[u8]) -> Vec<u8> {
    let (_, body) = split(object);
    [format!("sandboxd-snapshot 1 {}\n", ChunkHash::of(body)).as_bytes(), body].concat()
}

async fn put(fixture: &Fixture, path: &Path, object: Vec<u8>) {
    fixture.objects.objects.put(path, object.into()).await.unwrap();
}

async fn object(fixture: &Fixture, path: &Path) -> Vec<u8> {
    fixture.objects.objects.get(path).await.unwrap().bytes().await.unwrap().to_vec()
}

async fn refused(archive: &Archive, id: &str) -> Unauthentic {
    match archive.manifest(id).await {
        Err(ArchiveError::Unauthentic { object, reason }) => {
            assert!(object.ends_with(id), "{object}");
            reason
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_replaced_disk_is_refused() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 2, &[(0, 3)]);
    let own = fixture.disk("own", 2, &[(0, 9)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk)])).await;
    let other = open(&fixture.dir, &fixture.objects, "other");
    let path = fixture.archive.manifest_path("snap_1");
    // A disk of their choice, in chunks with the right names and a manifest with the right hashes.
    let stranger = open_with(&fixture.dir, &fixture.objects, "stranger", secrets('e', WithoutCode::Refuse));
    stranger
        .upload(&fixture.source("snap_1", "a", &[("snap_1", own)]), &|| true)
        .await
        .unwrap()
        .complete()
        .unwrap();
    let forged = object(&fixture, &path).await;
    assert!(matches!(refused(&other, "snap_1").await, Unauthentic::OtherSecret { .. }));
    // The same with the id of the right secret, and as of an earlier release.
    let own_id = secrets('a', WithoutCode::Refuse).code(&[]).key.to_string();
    let (line, body) = split(&forged);
    let stranger_id = line.split(' ').nth(3).unwrap();
    let renamed = [line.replace(stranger_id, &own_id).as_bytes(), b"\n", body].concat();
    put(&fixture, &path, renamed).await;
    assert_eq!(refused(&other, "snap_1").await, Unauthentic::WrongCode);
    put(&fixture, &path, without_code(&forged)).await;
    assert_eq!(refused(&other, "snap_1").await, Unauthentic::NoCode);
    // The host that has stored it does not ask the object store.
    assert!(fixture.archive.manifest("snap_1").await.unwrap().is_some());
}

#[tokio::test]
async fn manifests_cannot_be_swapped_between_snapshots_and_accounts() {
    let fixture = Fixture::new();
    for (id, account, seed) in [("snap_1", "a", 3), ("snap_2", "b", 5)] {
        let disk = fixture.disk(id, 1, &[(0, seed)]);
        fixture.upload(&fixture.source(id, account, &[(id, disk)])).await;
    }
    let other = open(&fixture.dir, &fixture.objects, "other");
    let paths = ["snap_1", "snap_2"].map(|id| fixture.archive.manifest_path(id));
    let objects = [object(&fixture, &paths[0]).await, object(&fixture, &paths[1]).await];
    put(&fixture, &paths[0], objects[1].clone()).await;
    put(&fixture, &paths[1], objects[0].clone()).await;
    for id in ["snap_1", "snap_2"] {
        assert_eq!(refused(&other, id).await, Unauthentic::WrongCode);
    }
    // The account is a part of what is authenticated.
    let (line, body) = split(&objects[0]);
    let body = String::from_utf8(body.to_vec()).unwrap().replace(r#""account":"a""#, r#""account":"b""#);
    let hash = line.split(' ').nth(2).unwrap();
    let line = line.replace(hash, &ChunkHash::of(body.as_bytes()).to_string());
    put(&fixture, &paths[0], format!("{line}\n{body}").into_bytes()).await;
    assert_eq!(refused(&other, "snap_1").await, Unauthentic::WrongCode);
    put(&fixture, &paths[0], objects[0].clone()).await;
    assert_eq!(other.manifest("snap_1").await.unwrap().unwrap().account, "a");
}

#[tokio::test]
async fn a_replaced_chunk_is_refused() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 2, &[(0, 3), (1, 5)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk)])).await;
    let other = open(&fixture.dir, &fixture.objects, "other");
    let manifest = other.manifest("snap_1").await.unwrap().unwrap();
    let paths: Vec<Path> =
        manifest.hashes().map(|hash| other.chunk_path(&manifest.host, "a", hash)).collect();
    // One chunk in the place of the other, and a bomb.
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
    assert!(bomb.len() < 10_000);
    for forged in [object(&fixture, &paths[1]).await, bomb] {
        put(&fixture, &paths[0], forged).await;
        let failed = fixture.read(&other, "snap_1", 0).await.unwrap_err();
        assert!(
            matches!(&failed, ArchiveError::Damaged { object, .. } if *object == paths[0].to_string()),
            "{failed}"
        );
    }
}

#[tokio::test]
async fn manifests_of_an_earlier_release_are_authenticated_by_their_host() {
    let mut fixture = Fixture::new();
    let disk = fixture.disk("disk", 2, &[(0, 3)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk.clone())])).await;
    let path = fixture.archive.manifest_path("snap_1");
    let before = without_code(&object(&fixture, &path).await);
    put(&fixture, &path, before.clone()).await;
    fs::write(fixture.dir.path().join("ledger/snap_1.json"), &before).unwrap();
    let other = open(&fixture.dir, &fixture.objects, "other");
    assert_eq!(refused(&other, "snap_1").await, Unauthentic::NoCode);
    let lenient = open_with(&fixture.dir, &fixture.objects, "lenient", secrets('a', WithoutCode::Accept));
    assert!(fixture.read(&lenient, "snap_1", 0).await.is_ok());
    // The next start of the host.
    fixture.restart();
    assert!(fixture.archive.has("snap_1"));
    assert_eq!(fixture.archive.reconcile().await.unwrap(), Reconciled::default());
    assert!(fixture.read(&other, "snap_1", 0).await.unwrap() == fs::read(&disk).unwrap());
    // Once, and chunks are not sent again.
    let puts = fixture.objects.puts();
    fixture.restart();
    fixture.archive.reconcile().await.unwrap();
    assert_eq!(fixture.objects.puts(), puts);
}

#[tokio::test]
async fn a_host_with_another_secret_says_so_until_it_has_the_same() {
    let mut fixture = Fixture::new();
    let disk = fixture.disk("disk", 2, &[(0, 3)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk)])).await;
    let other = open_with(&fixture.dir, &fixture.objects, "other", secrets('b', WithoutCode::Refuse));
    let reason = refused(&other, "snap_1").await.to_string();
    assert!(reason.contains("give both hosts the same file"), "{reason}");
    // The operator gives the first host the secret of the second one.
    let ledger = fixture.dir.path().join("ledger");
    assert!(ledger.exists());
    fixture.archive = open_with(&fixture.dir, &fixture.objects, "ledger", secrets('b', WithoutCode::Refuse));
    fixture.archive.reconcile().await.unwrap();
    assert!(fixture.read(&other, "snap_1", 0).await.is_ok());
}

#[tokio::test]
async fn a_forged_note_ends_no_sandbox() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 2, &[(0, 3)]);
    for id in ["sb_1", "sb_2", "sb_3", "sb_4"] {
        fixture.upload(&fixture.source(id, "a", &[("part", disk.clone())])).await;
    }
    let other = open(&fixture.dir, &fixture.objects, "other");
    let host = fixture.archive.ledger.host.clone();
    assert!(other.adopt(&host, "sb_1").await.unwrap());
    let note = object(&fixture, &other.notes(&host).join("sb_1")).await;
    // The note about another sandbox, one of an earlier release, and garbage.
    put(&fixture, &other.notes(&host).join("sb_2"), note).await;
    put(&fixture, &other.notes(&host).join("sb_3"), other.ledger.host.clone().into_bytes()).await;
    put(&fixture, &other.notes(&host).join("sb_4"), vec![0xff; 2000]).await;
    assert_eq!(fixture.archive.adopted().await.unwrap().into_iter().collect::<Vec<_>>(), ["sb_1"]);
    // What this host has noted itself with an earlier release is completed.
    assert!(other.adopt(&host, "sb_3").await.unwrap());
    assert!(fixture.archive.adopted().await.unwrap().contains("sb_3"));
    assert!(!fixture.archive.adopt(&host, "sb_2").await.unwrap());
}
