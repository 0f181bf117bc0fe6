//! Snapshots: what they contain, when their disks disappear, and who may use them.

use std::collections::BTreeSet;
use std::path::Path;

use api::Isolation;
use e2e::service::{Client, Service, ServiceOptions, small, with};
use hyper::Method;
use serde_json::{Value, json};

use crate::snapshots::create_from;
use crate::{
    SANDBOXES, SNAPSHOTS, action_path, create_sandbox, keys, number, output, run_command, sandbox_path,
    state, take_snapshot, text, time, user, wait_until,
};

async fn take(client: &Client, id: &str, body: Value) -> Value {
    client.post(&action_path(id, "snapshots"), &body).await.unwrap().is(201).unwrap()
}

async fn list(client: &Client, query: &str) -> Vec<String> {
    let page = client.get(&format!("{SNAPSHOTS}{query}")).await.unwrap().is(200).unwrap();
    page["data"].as_array().unwrap().iter().map(|snapshot| text(&snapshot["id"])).collect()
}

fn disks(service: &Service) -> BTreeSet<String> {
    let entries = std::fs::read_dir(service.layout.data.join("snapshots")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn a_snapshot_has_the_documented_fields() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let body = json!({ "name": "after setup", "metadata": { "job": "17" }, "memory": false, "unknown": 1 });
    let snapshot = take(&client, &id, body).await;
    let fields = [
        "createdAt",
        "id",
        "image",
        "isolation",
        "memory",
        "metadata",
        "name",
        "sandboxId",
        "sizeBytes",
        "state",
        "storage",
    ];
    assert_eq!(keys(&snapshot), fields);
    assert_eq!(snapshot["sandboxId"], id.as_str());
    assert_eq!(snapshot["image"], Service::image());
    assert_eq!((&snapshot["memory"], &snapshot["state"]), (&json!(false), &json!("ready")));
    assert_eq!(snapshot["storage"], "local");
    time(&snapshot["createdAt"]);
    // An unused disk costs a fraction of its size.
    assert!((1..32 << 20).contains(&number(&snapshot["sizeBytes"])), "{snapshot}");
    let path = format!("{SNAPSHOTS}/{}", text(&snapshot["id"]));
    assert_eq!(client.get(&path).await.unwrap().is(200).unwrap(), snapshot);
    let without_name = take(&client, &id, json!({})).await;
    assert!(!keys(&without_name).contains(&"name"), "{without_name}");
    let deleted = client.delete(&path).await.unwrap().is(200).unwrap();
    assert_eq!(keys(&deleted), ["deletedAt", "id"]);
    client.get(&path).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
    client.delete(&path).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
}

#[tokio::test]
async fn lists_have_filters_and_pages() {
    let (_service, client) = user().await;
    let (one, two) = (create_sandbox(&client).await, create_sandbox(&client).await);
    let mut ids = Vec::new();
    for (sandbox, name, job) in [(&one, "a", "1"), (&one, "b", "2"), (&two, "a", "2")] {
        let snapshot = take(&client, sandbox, json!({ "name": name, "metadata": { "job": job } })).await;
        ids.insert(0, text(&snapshot["id"]));
    }
    assert_eq!(list(&client, "").await, ids);
    assert_eq!(list(&client, &format!("?sandboxId={one}")).await, ids[1..]);
    assert_eq!(list(&client, "?name=a").await, [ids[0].clone(), ids[2].clone()]);
    assert_eq!(list(&client, "?metadata.job=2&name=b").await, [ids[1].clone()]);
    assert_eq!(list(&client, "?limit=1&offset=1").await, [ids[1].clone()]);
    let page = client.get(&format!("{SNAPSHOTS}?limit=2")).await.unwrap().is(200).unwrap();
    assert_eq!(page["pagination"], json!({ "total": 3, "limit": 2, "offset": 0, "hasMore": true }));
    for query in ["?limit=0", "?sandboxId=x", "?name=a&name=b"] {
        client.get(&format!("{SNAPSHOTS}{query}")).await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    }
    // The list of a terminated sandbox stays.
    client.delete(&sandbox_path(&one)).await.unwrap().is(200).unwrap();
    assert_eq!(list(&client, &format!("?sandboxId={one}")).await, ids[1..]);
}

#[tokio::test]
async fn a_create_can_name_a_snapshot() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut newest = String::new();
    for content in ["old", "new"] {
        output(&client, &id, &format!("echo {content} > note; sync")).await;
        newest = text(&take(&client, &id, json!({ "name": "prepared" })).await["id"]);
    }
    let copy = create_from(&client, "prepared").await;
    assert_eq!(output(&client, &copy, "cat note").await, "new\n");
    let view = client.get(&sandbox_path(&copy)).await.unwrap().is(200).unwrap();
    assert_eq!(view["image"], newest.as_str());

    // The name is that of another account's snapshot, and hides no image.
    let other = service.account().await.unwrap();
    let body = with(small(), "image", json!("prepared"));
    other.post(SANDBOXES, &body).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    take(&client, &id, json!({ "name": Service::image() })).await;
    let plain = create_from(&client, Service::image()).await;
    assert_eq!(output(&client, &plain, "cat note 2> /dev/null || echo none").await, "none\n");
}

#[tokio::test]
async fn a_sandbox_from_a_snapshot_has_its_files_exactly() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let prepare = "set -e; mkdir -p /srv/dir/sub; echo one > /srv/dir/one; ln -s one /srv/dir/link; ln /srv/dir/one /srv/dir/hard; \
                   mkfifo /srv/fifo; chmod 4711 /srv/dir/one; chown 1234:4321 /srv/dir/sub; touch -d 2001-02-03T04:05:06Z /srv/dir/one; \
                   truncate -s 1G /srv/sparse; rm /etc/hostname /usr/share/doc -rf; rm -rf /opt && mkdir /opt && echo new > /opt/file; \
                   chmod 711 /; mv /etc/issue /etc/renamed 2>/dev/null || echo x > /etc/renamed; echo 10.0.0.1 me >> /etc/hosts";
    output(&client, &id, prepare).await;
    let describe = "cd /; stat -c '%n %F %a %u:%g %h %s %Y' / /srv/dir/* /srv/fifo /srv/sparse /opt /opt/* /etc/renamed; \
                    readlink /srv/dir/link; cat /srv/dir/hard /etc/hosts; ls /etc/hostname /usr/share/doc /etc/issue 2>&1 | sort; ls -A /opt";
    // gVisor has named pipes in its memory only, and remembers the attributes of a file by name.
    let unlike: &[&str] = match e2e::isolation() {
        Isolation::Gvisor => &["/srv/fifo ", "/srv/dir/hard "],
        Isolation::Container => &[],
    };
    // Directories count their subdirectories differently on an overlay that merges them.
    let is_compared =
        |line: &&str| !line.contains(" directory ") && !unlike.iter().any(|name| line.starts_with(name));
    let normal =
        |text: &str| -> Vec<String> { text.lines().filter(is_compared).map(str::to_owned).collect() };
    let before = output(&client, &id, describe).await;
    let snapshot = take_snapshot(&client, &id).await;
    let copy = create_from(&client, &snapshot).await;
    assert_eq!(normal(&output(&client, &copy, describe).await), normal(&before));
    let directories = "stat -c '%n %a %u:%g' / /srv/dir/sub /opt /tmp /workspace";
    assert_eq!(output(&client, &copy, directories).await, output(&client, &id, directories).await);
    // What is deleted and replaced above stays so in a snapshot of the copy.
    output(
        &client,
        &copy,
        "set -e; rm /srv/dir/one; rm -rf /opt; echo two > /srv/dir/two; rmdir /workspace || true",
    )
    .await;
    let second = take_snapshot(&client, &copy).await;
    let last = create_from(&client, &second).await;
    assert_eq!(
        output(&client, &last, "ls -A /srv/dir; ls -d /opt 2>&1 || true; pwd").await,
        "hard\nlink\nsub\ntwo\nls: cannot access '/opt': No such file or directory\n/workspace\n"
    );
    let view = client.get(&sandbox_path(&last)).await.unwrap().is(200).unwrap();
    assert_eq!(view["image"], second.as_str());
}

#[tokio::test]
async fn a_busy_sandbox_stands_still_briefly_and_its_copy_is_consistent() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    // Data that takes a while to copy, and a writer that goes on meanwhile: of a pair of files the first is always written first.
    output(&client, &id, "head -c 300M /dev/urandom > big; sync big; md5sum < big > sum").await;
    let writer = "n=0; while true; do n=$((n+1)); echo $n >> first; echo $n >> second; done";
    let body = json!({ "command": writer, "detached": true });
    client.post(&action_path(&id, "execute"), &body).await.unwrap().is(201).unwrap();
    for _ in 0..3 {
        let snapshot = take_snapshot(&client, &id).await;
        assert_eq!(state(&client, &id).await, "running");
        let copy = create_from(&client, &snapshot).await;
        let check = "set -e; md5sum < big | cmp - sum; f=$(tail -n1 first); s=$(tail -n1 second); \
                     test $((f - s)) -ge 0 && test $((f - s)) -le 1; test \"$(wc -l < first)\" = \"$f\"; echo $f";
        let lines: u64 = output(&client, &copy, check).await.trim().parse().unwrap();
        assert!(lines > 0);
        client.delete(&sandbox_path(&copy)).await.unwrap().is(200).unwrap();
        client.delete(&format!("{SNAPSHOTS}/{snapshot}")).await.unwrap().is(200).unwrap();
    }
    let events = client
        .get(&format!("/v1/sandboxes/{id}/events?type=snapshot.created"))
        .await
        .unwrap()
        .is(200)
        .unwrap();
    let frozen: Vec<u64> =
        events["data"].as_array().unwrap().iter().map(|event| number(&event["data"]["frozenMs"])).collect();
    assert_eq!(frozen.len(), 3, "{events}");
    // The bound is measured by the bench; here other tests run at the same time.
    assert!(frozen.iter().all(|ms| *ms < 2000), "{frozen:?}");
}

#[tokio::test]
async fn a_paused_sandbox_stays_paused_and_its_snapshot_is_complete() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    // Not closed and not synced when it is paused.
    let body =
        json!({ "command": "exec 3> open; echo written >&3; touch ready; sleep 600", "detached": true });
    client.post(&action_path(&id, "execute"), &body).await.unwrap().is(201).unwrap();
    wait_until("the file is written", async || {
        run_command(&client, &id, json!({ "command": "test -e ready" })).await["exitCode"] == 0
    })
    .await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    let snapshot = take_snapshot(&client, &id).await;
    assert_eq!(state(&client, &id).await, "paused");
    let copy = create_from(&client, &snapshot).await;
    assert_eq!(output(&client, &copy, "cat open").await, "written\n");
    assert_eq!(output(&client, &id, "pgrep -c sleep").await, "1\n");
}

#[tokio::test]
async fn the_disk_of_a_deleted_snapshot_stays_as_long_as_it_is_used() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    output(&client, &id, "echo base > base").await;
    let first = take_snapshot(&client, &id).await;
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let middle = create_from(&client, &first).await;
    output(&client, &middle, "echo middle > middle").await;
    let second = take_snapshot(&client, &middle).await;
    for snapshot in [&first, &second] {
        client.delete(&format!("{SNAPSHOTS}/{snapshot}")).await.unwrap().is(200).unwrap();
    }
    // The second has no user any more, the first has one.
    wait_until("the second disk is removed", async || disks(&service) == [first.clone()].into()).await;
    client
        .post(SANDBOXES, &with(small(), "image", json!(second)))
        .await
        .unwrap()
        .error(404, "SNAPSHOT_NOT_FOUND")
        .unwrap();
    service.restart().await.unwrap();
    let client = client.with_own_connections();
    assert_eq!(disks(&service), [first.clone()].into());
    assert_eq!(output(&client, &middle, "cat base middle").await, "base\nmiddle\n");
    // Its processes are started again above the deleted snapshot.
    client.post_empty(&action_path(&middle, "pause")).await.unwrap().is(200).unwrap();
    service.kill().unwrap();
    service.start_process().await.unwrap();
    let client = client.with_own_connections();
    assert_eq!(output(&client, &middle, "cat base").await, "base\n");
    client.delete(&sandbox_path(&middle)).await.unwrap().is(200).unwrap();
    wait_until("the first disk is removed", async || disks(&service).is_empty()).await;
}

#[tokio::test]
async fn a_chain_of_snapshots_does_not_grow_without_bound() {
    let (service, client) = user().await;
    let mut id = create_sandbox(&client).await;
    for round in 1..=12 {
        output(
            &client,
            &id,
            &format!("echo {round} >> rounds; echo {round} > file-{round}; rm -f file-{}", round - 3),
        )
        .await;
        let snapshot = take_snapshot(&client, &id).await;
        let next = create_from(&client, &snapshot).await;
        client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
        client.delete(&format!("{SNAPSHOTS}/{snapshot}")).await.unwrap().is(200).unwrap();
        id = next;
    }
    assert_eq!(output(&client, &id, "wc -l < rounds; ls").await, "12\nfile-10\nfile-11\nfile-12\nrounds\n");
    let mounted = output(
        &client,
        &id,
        "grep ' / / ' /proc/self/mountinfo | grep -o 'lowerdir=[^,]*' | tr ':' '\\n' | grep -c upper || true",
    )
    .await;
    assert!(mounted.trim().parse::<u64>().unwrap() <= 8, "{mounted}");
    drop(service);
}

#[tokio::test]
async fn accounts_do_not_see_each_others_snapshots() {
    let (service, client) = user().await;
    let other = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let snapshot = take_snapshot(&client, &id).await;
    let own = create_sandbox(&other).await;
    let path = format!("{SNAPSHOTS}/{snapshot}");
    other.get(&path).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
    other.delete(&path).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
    other
        .post(SANDBOXES, &with(small(), "image", json!(snapshot)))
        .await
        .unwrap()
        .error(404, "SNAPSHOT_NOT_FOUND")
        .unwrap();
    other
        .post(&action_path(&own, "rollback"), &json!({ "snapshotId": snapshot }))
        .await
        .unwrap()
        .error(404, "SNAPSHOT_NOT_FOUND")
        .unwrap();
    for verb in ["snapshots", "fork"] {
        other
            .post(&action_path(&id, verb), &json!({ "count": 1 }))
            .await
            .unwrap()
            .error(404, "SANDBOX_NOT_FOUND")
            .unwrap();
    }
    assert_eq!(list(&other, "").await, [""; 0]);
    let reader = service.client_with_new_key(&format!("reader-of-{id}"), "read").await.unwrap();
    reader.delete(&path).await.unwrap().error(403, "FORBIDDEN").unwrap();
    assert_eq!(client.get(&path).await.unwrap().is(200).unwrap()["id"], snapshot.as_str());
}

#[tokio::test]
async fn bad_requests_name_their_field() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let snapshot = take_snapshot(&client, &id).await;
    for (body, code, field) in [
        (json!({ "memory": 1 }), "INVALID_REQUEST", "memory"),
        (json!({ "name": "" }), "INVALID_CONFIG", "name"),
        (json!({ "name": 1 }), "INVALID_REQUEST", "name"),
        (json!({ "metadata": { "": "x" } }), "INVALID_CONFIG", "key in metadata"),
    ] {
        let error =
            client.post(&action_path(&id, "snapshots"), &body).await.unwrap().error(400, code).unwrap();
        assert_eq!(error["details"]["field"], field, "{error}");
    }
    // The disk is at least as large as that of the snapshot.
    let large = with(small(), "resources", json!({ "memoryMb": 2048, "diskMb": 8192 }));
    let large = text(&client.post(SANDBOXES, &large).await.unwrap().is(201).unwrap()["id"]);
    let of_large = take_snapshot(&client, &large).await;
    let error = client.post(SANDBOXES, &with(small(), "image", json!(of_large))).await.unwrap();
    assert!(text(&error.error(400, "INVALID_CONFIG").unwrap()["message"]).contains("8192 to 51200"));
    let grown = json!({ "image": snapshot, "resources": { "memoryMb": 2048, "diskMb": 6000 } });
    let grown = client.post(SANDBOXES, &grown).await.unwrap().is(201).unwrap();
    assert_eq!(grown["resources"]["diskMb"], 6000);
    for unknown in ["snap_00000000000000000000", "snap_x", "snap_../../etc"] {
        let body = with(small(), "image", json!(unknown));
        let error = client.post(SANDBOXES, &body).await.unwrap().error(404, "SNAPSHOT_NOT_FOUND").unwrap();
        assert_eq!(error["details"]["snapshotId"], unknown);
    }
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    client
        .post(&action_path(&id, "snapshots"), &json!({}))
        .await
        .unwrap()
        .error(404, "SANDBOX_NOT_FOUND")
        .unwrap();
}

#[tokio::test]
async fn a_repeated_request_with_the_same_key_takes_one_snapshot() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let path = action_path(&id, "snapshots");
    let calls = (0..4).map(|_| {
        client.call(Method::POST, &path).header("idempotency-key", "nightly").json(&json!({})).send()
    });
    let answers = futures_util::future::join_all(calls).await;
    let ids: BTreeSet<String> =
        answers.into_iter().map(|answer| text(&answer.unwrap().is(201).unwrap()["id"])).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(list(&client, "").await.len(), 1);
}

#[tokio::test]
async fn quotas_bound_number_and_size() {
    let options =
        ServiceOptions::default().with("quotas", "snapshots", "2").with("quotas", "snapshots_mb", "60");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let first = take_snapshot(&client, &id).await;
    let second = take_snapshot(&client, &id).await;
    let error = client
        .post(&action_path(&id, "snapshots"), &json!({}))
        .await
        .unwrap()
        .error(429, "QUOTA_EXCEEDED")
        .unwrap();
    assert_eq!(error["details"]["quota"], "quotas.snapshots");
    let usage = client.get("/v1/usage").await.unwrap().is(200).unwrap();
    assert_eq!(usage["snapshots"], json!({ "used": 2, "allowed": 2 }));
    assert_eq!(usage["snapshotBytes"]["allowed"], 60 << 20);
    assert!(number(&usage["snapshotBytes"]["used"]) > 0);
    for snapshot in [first, second] {
        client.delete(&format!("{SNAPSHOTS}/{snapshot}")).await.unwrap().is(200).unwrap();
    }
    output(&client, &id, "head -c 80M /dev/urandom > big; sync big").await;
    let error = client
        .post(&action_path(&id, "snapshots"), &json!({}))
        .await
        .unwrap()
        .error(429, "QUOTA_EXCEEDED")
        .unwrap();
    assert_eq!(error["details"]["quota"], "quotas.snapshots_mb");
    wait_until("refused snapshots leave nothing", async || disks(&service).is_empty()).await;
}

#[tokio::test]
async fn a_hostile_sandbox_hurts_only_itself() {
    let (_service, client) = user().await;
    let (hostile, other) = (create_sandbox(&client).await, create_sandbox(&client).await);
    // Writers that hold the file system, a write that waits for a pipe, and a full disk.
    let attack = "for i in $(seq 8); do (while true; do dd if=/dev/zero of=/f$i bs=64k count=2000 conv=notrunc oflag=dsync 2>/dev/null; done) & done; \
                  mkfifo /p; (sleep 1000 > /p &) ; cat < /p > /stuck & (while true; do head -c 6G /dev/zero > /fill; done) 2>/dev/null & wait";
    let body = json!({ "command": attack, "detached": true });
    client.post(&action_path(&hostile, "execute"), &body).await.unwrap().is(201).unwrap();
    wait_until("all writers have begun", async || {
        let begun = "test -e /f8 && test -e /stuck && test -s /fill && echo begun; true";
        output(&client, &hostile, begun).await == "begun\n"
    })
    .await;
    let taking = client.with_own_connections();
    let path = action_path(&hostile, "snapshots");
    let taken = tokio::spawn(async move { taking.post(&path, &json!({})).await.unwrap() });
    // Another sandbox of the same host works and can be snapshotted meanwhile.
    assert_eq!(output(&client, &other, "echo fine").await, "fine\n");
    take_snapshot(&client, &other).await;
    let answer = taken.await.unwrap();
    if answer.status == 201 {
        let copy = create_from(&client, &text(&answer.json().unwrap()["id"])).await;
        assert_eq!(output(&client, &copy, "test -s /f1 && echo there").await, "there\n");
    }
    client.delete(&sandbox_path(&hostile)).await.unwrap().is(200).unwrap();
}

#[test]
fn layers_of_images_are_no_snapshots() {
    assert_eq!(driver::snapshot_of_layer(Path::new("/images/layers/0123")), None);
    assert!(driver::snapshot_of_layer(Path::new("/snapshots/x/snap_12345678.img")).is_some());
}

#[tokio::test]
async fn a_snapshot_of_a_sandbox_that_is_being_terminated_is_complete_or_refused() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    for delay_ms in [0, 1, 3, 6, 10, 20, 40] {
        let id = create_sandbox(&client).await;
        output(&client, &id, "head -c 20000000 /dev/urandom > file").await;
        let (taker, path) = (client.with_own_connections(), action_path(&id, "snapshots"));
        let taking = tokio::spawn(async move { taker.post(&path, &json!({})).await.unwrap() });
        tokio::time::sleep(std::time::Duration::from_millis(delay_ms)).await;
        client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
        let answer = taking.await.unwrap();
        if answer.status != 201 {
            answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
            continue;
        }
        let snapshot = text(&answer.is(201).unwrap()["id"]);
        let copy = create_from(&client, &snapshot).await;
        assert_eq!(output(&client, &copy, "wc -c < file").await, "20000000\n");
        client.delete(&sandbox_path(&copy)).await.unwrap().is(200).unwrap();
        client.delete(&format!("{SNAPSHOTS}/{snapshot}")).await.unwrap().is(200).unwrap();
    }
    wait_until("no disk of a snapshot is left", async || disks(&service).is_empty()).await;
}
