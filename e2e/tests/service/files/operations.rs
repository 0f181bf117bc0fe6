//! File operations: effects and responses.

use e2e::service::{HttpResponse, Service, ServiceOptions};
use hyper::Method;
use serde_json::json;

use crate::files::{files_path, put, read, write};
use crate::{
    SANDBOXES, UNKNOWN_ID, action_path, create_sandbox, output, small, state, text, time, user, with,
};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n % 251) as u8 ^ (n / 65_521) as u8).collect()
}

#[tokio::test]
async fn a_file_is_written_and_read() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let content = pattern(30_000_001);
    for client in [client.clone(), service.over_http2(&client).unwrap()] {
        let entry = write(&client, &id, "dir.bin", content.clone()).await;
        assert_eq!(
            (text(&entry["name"]), text(&entry["path"])),
            ("dir.bin".into(), "/workspace/dir.bin".into())
        );
        assert_eq!(entry["sizeBytes"], 30_000_001);
        assert_eq!(
            (&entry["isDirectory"], &entry["kind"], &entry["mode"]),
            (&json!(false), &json!("file"), &json!("0644"))
        );
        time(&entry["modifiedAt"]);
        let answer = read(&client, &id, "/workspace/dir.bin").await;
        assert_eq!(answer.status, 200);
        assert!(answer.body == content);
        assert_eq!(answer.header("content-length"), Some("30000001"));
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    }
    let sum = output(&client, &id, "sha256sum < dir.bin; stat -c '%a %U' dir.bin").await;
    assert!(sum.ends_with("644 root\n"), "{sum}");
    // An empty file and one of one byte.
    for content in ["", "x"] {
        write(&client, &id, "small", content).await;
        assert_eq!(read(&client, &id, "small").await.body, content);
    }
    // Sizes around those of the blocks in which content travels.
    for bytes in [8 << 10, 40 << 10, 192 << 10, 256 << 10, 1 << 20, 3 << 20] {
        for content in [pattern(bytes - 1), pattern(bytes), pattern(bytes + 1)] {
            write(&client, &id, "sized", content.clone()).await;
            assert!(read(&client, &id, "sized").await.body == content, "{} bytes", content.len());
        }
    }
    // Parents, modes, names that need encoding.
    let query = "path=a/b/%C3%A9%20%2B%26%3D.txt&parents=true&mode=0750";
    let entry = put(&client, &files_path(&id, "", query), "x").await.is(200).unwrap();
    assert_eq!(
        (text(&entry["path"]), text(&entry["mode"])),
        ("/workspace/a/b/é +&=.txt".into(), "0750".into())
    );
    assert_eq!(output(&client, &id, "ls a/b").await, "é +&=.txt\n");
    put(&client, &files_path(&id, "", "path=no/such/file"), "x").await.error(404, "FILE_NOT_FOUND").unwrap();
    // Commands and file operations see each other's files.
    output(&client, &id, "echo from inside > seen").await;
    assert_eq!(read(&client, &id, "seen").await.text(), "from inside\n");
    // Files that report no length.
    assert!(read(&client, &id, "/proc/self/status").await.text().starts_with("Name:"));
    assert!(read(&client, &id, "/proc/kallsyms").await.status < 500);
}

#[tokio::test]
async fn ranges_head_requests_and_etags_work() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let content = pattern(1_000_000);
    write(&client, &id, "f", content.clone()).await;
    let path = files_path(&id, "", "path=f");
    let range =
        async |range: &str| client.call(Method::GET, &path).header("range", range).send().await.unwrap();
    for (requested, begin, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=999990-", 999_990, 1_000_000),
        ("bytes=-5", 999_995, 1_000_000),
        ("bytes=-2000000", 0, 1_000_000),
        ("bytes=300000-700000", 300_000, 700_001),
        ("bytes=999999-5000000", 999_999, 1_000_000),
    ] {
        let answer = range(requested).await;
        assert_eq!(answer.status, 206, "{requested}");
        assert!(answer.body == content[begin..end], "{requested}");
        let expected = format!("bytes {begin}-{}/1000000", end - 1);
        assert_eq!(answer.header("content-range"), Some(expected.as_str()), "{requested}");
    }
    for ignored in ["bytes=5-4", "bytes=0-1,5-6", "lines=1-2", "bytes=x"] {
        assert_eq!(range(ignored).await.status, 200, "{ignored}");
    }
    range("bytes=1000000-").await.error(416, "INVALID_REQUEST").unwrap();
    let head = client.call(Method::HEAD, &path).send().await.unwrap();
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("1000000"), 0));
    let tag = head.header("etag").unwrap().to_owned();
    assert!(head.header("last-modified").unwrap().ends_with(" GMT"));
    let if_range = async |tag: &str| {
        client
            .call(Method::GET, &path)
            .header("range", "bytes=1-2")
            .header("if-range", tag)
            .send()
            .await
            .unwrap()
    };
    assert_eq!(if_range(&tag).await.status, 206);
    write(&client, &id, "f", content.clone()).await;
    assert_eq!(if_range(&tag).await.status, 200);
    // The content changed, so the range is ignored, even if the file is shorter than its start.
    write(&client, &id, "f", "y").await;
    let shorter = client.call(Method::GET, &path).header("range", "bytes=1000-").header("if-range", &tag);
    let shorter = shorter.send().await.unwrap();
    assert_eq!((shorter.status, shorter.text().as_str()), (200, "y"));
    write(&client, &id, "f", "").await;
    range("bytes=0-").await.error(416, "INVALID_REQUEST").unwrap();
}

#[tokio::test]
async fn list_stat_and_exists_work() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    output(&client, &id, "mkdir d; cd d; touch {a..z} .hidden; mkdir sub; ln -s a link; ln -s nowhere dangling; mkfifo fifo; printf x > $'b\\xffd'").await;
    let list = async |query: &str| client.get(&files_path(&id, "/list", query)).await.unwrap();
    let page = list("path=d&limit=5&offset=0").await.is(200).unwrap();
    assert_eq!(page["pagination"], json!({ "total": 32, "limit": 5, "offset": 0, "hasMore": true }));
    let all = list("path=d&limit=100").await.is(200).unwrap();
    let names: Vec<String> =
        all["data"].as_array().unwrap().iter().map(|entry| text(&entry["name"])).collect();
    assert_eq!(all["data"].as_array().unwrap()[..5], page["data"].as_array().unwrap()[..]);
    assert!(names.is_sorted() && names.contains(&".hidden".to_owned()), "{names:?}");
    let of = |name: &str| {
        all["data"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (of("sub")["isDirectory"].clone(), of("sub")["kind"].clone()),
        (json!(true), json!("directory"))
    );
    assert_eq!(
        (of("link")["kind"].clone(), of("link")["linkTarget"].clone()),
        (json!("symlink"), json!("a"))
    );
    assert_eq!(of("fifo")["kind"], "other");
    assert!(of("a").get("rawPath").is_none());
    // A name that is not UTF-8 is addressed by its bytes.
    let odd = of("b\u{fffd}d");
    assert_eq!(odd["rawPath"], "/workspace/d/b%FFd");
    assert_eq!(read(&client, &id, &text(&odd["rawPath"])).await.text(), "x");
    list("path=d/a").await.error(409, "NOT_A_DIRECTORY").unwrap();
    list("path=none").await.error(404, "FILE_NOT_FOUND").unwrap();
    let stat = async |query: &str| client.get(&files_path(&id, "/stat", query)).await.unwrap();
    assert_eq!(stat("path=d/link").await.is(200).unwrap()["kind"], "symlink");
    assert_eq!(stat("path=d/link&follow=true").await.is(200).unwrap()["kind"], "file");
    assert_eq!(stat("path=/").await.is(200).unwrap()["path"], "/");
    assert_eq!(stat("path=.").await.is(200).unwrap()["path"], "/workspace");
    stat("path=d/dangling&follow=true").await.error(404, "FILE_NOT_FOUND").unwrap();
    for (path, exists) in [("d", true), ("d/dangling", true), ("none", false), ("d/a/b", false), ("/", true)]
    {
        let answer = client.get(&files_path(&id, "/exists", &format!("path={path}"))).await.unwrap();
        assert_eq!(answer.is(200).unwrap(), json!({ "exists": exists }), "{path}");
    }
}

#[tokio::test]
async fn mkdir_move_and_delete_work() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let post =
        async |what: &str, query: &str| client.post_empty(&files_path(&id, what, query)).await.unwrap();
    let delete = async |query: &str| client.delete(&files_path(&id, "", query)).await.unwrap();
    post("/mkdir", "path=a/b").await.error(404, "FILE_NOT_FOUND").unwrap();
    let created = post("/mkdir", "path=a/b&recursive=true&mode=0700").await.is(200).unwrap();
    assert_eq!(
        (&created["isDirectory"], &created["mode"], &created["path"]),
        (&json!(true), &json!("0700"), &json!("/workspace/a/b"))
    );
    post("/mkdir", "path=a/b&recursive=true").await.is(200).unwrap();
    post("/mkdir", "path=a/b").await.error(409, "FILE_EXISTS").unwrap();
    write(&client, &id, "a/b/f", "content").await;
    post("/mkdir", "path=a/b/f/g").await.error(409, "NOT_A_DIRECTORY").unwrap();
    let moved = post("/move", "from=a/b/f&to=g").await.is(200).unwrap();
    assert_eq!((&moved["path"], &moved["sizeBytes"]), (&json!("/workspace/g"), &json!(7)));
    post("/move", "from=a/b/f&to=h").await.error(404, "FILE_NOT_FOUND").unwrap();
    write(&client, &id, "h", "other").await;
    post("/move", "from=g&to=h").await.error(409, "FILE_EXISTS").unwrap();
    post("/move", "from=g&to=h&overwrite=true").await.is(200).unwrap();
    assert_eq!(read(&client, &id, "h").await.text(), "content");
    // Directories of the image are on a lower layer, /dev/shm is another file system.
    post("/move", "from=/usr/share/doc&to=/srv/doc").await.is(200).unwrap();
    assert_eq!(
        output(&client, &id, "test -d /srv/doc && test ! -e /usr/share/doc && echo moved").await,
        "moved\n"
    );
    post("/move", "from=a&to=/dev/shm/a").await.is(200).unwrap();
    assert_eq!(output(&client, &id, "ls -d /dev/shm/a/b").await, "/dev/shm/a/b\n");
    delete("path=/dev/shm/a").await.error(409, "DIRECTORY_NOT_EMPTY").unwrap();
    let deleted = delete("path=/dev/shm/a&recursive=true").await.is(200).unwrap();
    assert_eq!(deleted, json!({ "path": "/dev/shm/a", "deleted": 2 }));
    delete("path=/dev/shm/a").await.error(404, "FILE_NOT_FOUND").unwrap();
    delete("path=h").await.is(200).unwrap();
    delete("path=/&recursive=true").await.error(403, "PERMISSION_DENIED").unwrap();
    delete("path=/proc/version").await.error(403, "PERMISSION_DENIED").unwrap();
    read(&client, &id, "/workspace").await.error(409, "NOT_A_FILE").unwrap();
    read(&client, &id, "h").await.error(404, "FILE_NOT_FOUND").unwrap();
}

#[tokio::test]
async fn a_directory_is_packed_and_unpacked_as_tar() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    output(
        &client,
        &id,
        "mkdir -p t/sub; echo one > t/one; echo two > t/sub/two; ln -s ../one t/sub/link; chmod 751 t/one",
    )
    .await;
    let archive = client.get(&files_path(&id, "/tar", "path=t")).await.unwrap();
    assert_eq!((archive.status, archive.header("content-type")), (200, Some("application/x-tar")));
    let unpacked = put(&client, &files_path(&id, "/tar", "path=copy/of/t"), archive.body.to_vec())
        .await
        .is(200)
        .unwrap();
    let expected = json!({ "path": "/workspace/copy/of/t", "files": 2, "directories": 1, "links": 1, "skipped": 0, "bytes": 8 });
    assert_eq!(unpacked, expected);
    assert_eq!(output(&client, &id, "diff -r t copy/of/t && stat -c %a copy/of/t/one").await, "751\n");
    // The tar program in the sandbox accepts the archive too.
    write(&client, &id, "t.tar", archive.body.to_vec()).await;
    output(&client, &id, "tar -C t --compare -f t.tar").await;
    put(&client, &files_path(&id, "/tar", "path=x"), "not an archive")
        .await
        .error(400, "INVALID_REQUEST")
        .unwrap();
    client.get(&files_path(&id, "/tar", "path=t/one")).await.unwrap().error(409, "NOT_A_DIRECTORY").unwrap();
    client.get(&files_path(&id, "/tar", "path=none")).await.unwrap().error(404, "FILE_NOT_FOUND").unwrap();
}

#[tokio::test]
async fn ten_thousand_small_files_are_packed_and_unpacked() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    output(&client, &id, "mkdir many && cd many && for i in $(seq 10000); do echo $i > $i; done").await;
    let begin = std::time::Instant::now();
    let archive = client.get(&files_path(&id, "/tar", "path=many")).await.unwrap();
    let out = begin.elapsed();
    let begin = std::time::Instant::now();
    let unpacked =
        put(&client, &files_path(&id, "/tar", "path=again"), archive.body.to_vec()).await.is(200).unwrap();
    println!("10,000 files packed in {out:?}, unpacked in {:?}", begin.elapsed());
    assert_eq!(unpacked["files"], 10_000);
    assert_eq!(output(&client, &id, "diff -r many again && ls again | wc -l").await, "10000\n");
}

#[tokio::test]
async fn file_operations_resume_a_paused_sandbox_if_allowed() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    write(&client, &id, "f", "kept").await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    for (method, what, query) in [
        (Method::GET, "", "path=f"),
        (Method::PUT, "", "path=f"),
        (Method::DELETE, "", "path=f"),
        (Method::GET, "/list", "path=."),
        (Method::GET, "/stat", "path=f"),
        (Method::GET, "/exists", "path=f"),
        (Method::POST, "/mkdir", "path=g"),
        (Method::POST, "/move", "from=f&to=g"),
        (Method::GET, "/tar", "path=."),
        (Method::PUT, "/tar", "path=g"),
    ] {
        let path = files_path(&id, what, &format!("{query}&autoResume=false"));
        let answer = client.call(method, &path).send().await.unwrap();
        assert_eq!(answer.error(409, "INVALID_STATE").unwrap()["details"]["state"], "paused", "{path}");
    }
    assert_eq!(state(&client, &id).await, "paused");
    assert_eq!(read(&client, &id, "f").await.text(), "kept");
    assert_eq!(state(&client, &id).await, "running");
}

#[tokio::test]
async fn a_slow_upload_counts_as_activity() {
    let (service, client) = user().await;
    let body = with(small(), "idleTimeoutMs", json!(1_000));
    let id = text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]);
    let mut raw = service.raw().await.unwrap();
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\ncontent-length: 6\r\n\r\n",
        files_path(&id, "", "path=slow"),
        client.authorization()
    );
    assert!(raw.write(head.as_bytes()).await);
    for byte in [b"s", b"l", b"o", b"w", b"l", b"y"] {
        tokio::time::sleep(std::time::Duration::from_millis(600)).await;
        assert_eq!(state(&client, &id).await, "running");
        raw.write(byte).await;
    }
    raw.answer().await.unwrap().is(200).unwrap();
    crate::wait_until("it is paused again", async || state(&client, &id).await == "paused").await;
    assert_eq!(read(&client, &id, "slow").await.text(), "slowly");
}

#[tokio::test]
async fn an_upload_to_a_terminated_sandbox_is_not_found() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut raw = service.raw().await.unwrap();
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\ncontent-length: 1000000\r\n\r\n",
        files_path(&id, "", "path=never"),
        client.authorization()
    );
    assert!(raw.write(head.as_bytes()).await && raw.write(&[7; 500_000]).await);
    client.delete(&crate::sandbox_path(&id)).await.unwrap().is(200).unwrap();
    raw.write(&[7; 500_000]).await;
    raw.answer().await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
}

#[tokio::test]
async fn files_of_other_accounts_and_unknown_ids_are_not_found() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let other = service.account().await.unwrap();
    read(&other, &id, "/etc/passwd").await.error(404, "SANDBOX_NOT_FOUND").unwrap();
    read(&client, UNKNOWN_ID, "/etc/passwd").await.error(404, "SANDBOX_NOT_FOUND").unwrap();
    put(&client, &files_path(UNKNOWN_ID, "", "path=f"), "x").await.error(404, "SANDBOX_NOT_FOUND").unwrap();
    client.delete(&crate::sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let error = read(&client, &id, "/etc/passwd").await.error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"]["state"], "terminated");
}

#[tokio::test]
async fn errors_of_queries_name_the_allowed_values() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for (method, what, query) in [
        (Method::GET, "", ""),
        (Method::GET, "", "path="),
        (Method::GET, "", "path=%00"),
        (Method::GET, "", "path=%zz"),
        (Method::GET, "", "path=a&path=b"),
        (Method::GET, "", "path=a&autoResume=yes"),
        (Method::PUT, "", "path=a&mode=999"),
        (Method::PUT, "", "path=a&parents=1"),
        (Method::GET, "/list", "path=.&limit=0"),
        (Method::GET, "/list", "path=.&limit=101"),
        (Method::GET, "/list", "path=.&offset=-1"),
        (Method::POST, "/move", "from=a"),
        (Method::DELETE, "", "path=a&recursive="),
    ] {
        let answer = client.call(method, &files_path(&id, what, query)).send().await.unwrap();
        let error = answer.error(400, "INVALID_REQUEST").unwrap();
        assert!(text(&error["message"]).contains("allowed:"), "{error}");
    }
    let encoded = client.call(Method::PUT, &files_path(&id, "", "path=a")).header("content-encoding", "gzip");
    encoded.send().await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    let part =
        client.call(Method::PUT, &files_path(&id, "", "path=a")).header("content-range", "bytes 0-1/2");
    part.send().await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    let wrong = client.post_empty(&files_path(&id, "", "path=a")).await.unwrap();
    wrong.error(405, "METHOD_NOT_ALLOWED").unwrap();
}

/// They use up neither the reads nor the writes of the key.
#[tokio::test]
async fn file_operations_count_against_the_limit_of_their_sandbox() {
    let options = ServiceOptions::default().default_rates();
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let limit = |answer: &HttpResponse| answer.header("x-ratelimit-limit").unwrap().to_owned();
    assert_eq!(limit(&client.get(&files_path(&id, "/stat", "path=/")).await.unwrap()), "600");
    assert_eq!(limit(&put(&client, &files_path(&id, "", "path=f"), "x").await), "600");
    assert_eq!(limit(&client.post_empty(&files_path(&id, "/mkdir", "path=d")).await.unwrap()), "600");
}
