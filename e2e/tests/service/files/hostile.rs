//! Special files, links and full disks, clients that disconnect during uploads, and a daemon that is killed meanwhile.

use std::time::{Duration, Instant};

use e2e::service::{Client, Raw, Service, ServiceOptions};
use hyper::Method;

use crate::files::{files_path, put, read, write};
use crate::{create_sandbox, output, text, user, wait_until};

/// Starts an upload and sends a part of it.
async fn start_upload(service: &Service, client: &Client, id: &str, path: &str) -> Raw {
    let mut raw = service.raw().await.unwrap();
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\ncontent-length: 50000000\r\n\r\n",
        files_path(id, "", &format!("path={path}")),
        client.authorization()
    );
    assert!(raw.write(head.as_bytes()).await && raw.write(&vec![b'n'; 5_000_000]).await);
    wait_until("the upload is being written", async || temporary_files(client, id).await != "0\n").await;
    raw
}

async fn temporary_files(client: &Client, id: &str) -> String {
    output(client, id, "ls -A /workspace | grep -c 'sbx-' || true").await
}

#[tokio::test]
async fn an_aborted_upload_leaves_the_old_file() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    write(&client, &id, "f", "old").await;
    let raw = start_upload(&service, &client, &id, "f").await;
    assert_eq!(read(&client, &id, "f").await.text(), "old");
    drop(raw);
    wait_until("the temporary file is removed", async || temporary_files(&client, &id).await == "0\n").await;
    assert_eq!(read(&client, &id, "f").await.text(), "old");
}

#[tokio::test]
async fn an_upload_during_a_kill_leaves_the_old_file() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    write(&client, &id, "f", "old").await;
    let raw = start_upload(&service, &client, &id, "f").await;
    service.kill().unwrap();
    drop(raw);
    service.start_process().await.unwrap();
    let client = client.with_own_connections();
    wait_until("the temporary file is removed", async || temporary_files(&client, &id).await == "0\n").await;
    assert_eq!(read(&client, &id, "f").await.text(), "old");
    write(&client, &id, "f", "new").await;
    assert_eq!(read(&client, &id, "f").await.text(), "new");
}

#[tokio::test]
async fn special_files_do_not_block() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let make = "mkfifo fifo; ln -s loop loop; ln -s fifo to-fifo; truncate -s 10T endless; \
                python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")' 2>/dev/null; true";
    output(&client, &id, make).await;
    let begin = Instant::now();
    for path in ["fifo", "to-fifo", "/dev/zero", "/dev/random", "/dev/tty", "/dev/ptmx", "/dev"] {
        read(&client, &id, path).await.error(409, "NOT_A_FILE").unwrap();
        put(&client, &files_path(&id, "", &format!("path={path}")), "x")
            .await
            .error(409, "NOT_A_FILE")
            .unwrap();
    }
    read(&client, &id, ".").await.error(409, "NOT_A_FILE").unwrap();
    put(&client, &files_path(&id, "", "path=."), "x").await.error(400, "INVALID_REQUEST").unwrap();
    read(&client, &id, "loop").await.error(400, "INVALID_REQUEST").unwrap();
    for path in
        ["/proc/kmsg", "/proc/1/mem", "/proc/kcore", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"]
    {
        let answer = read(&client, &id, path).await;
        assert!(matches!(answer.status, 200 | 403 | 404 | 409 | 502), "{path}: {}", answer.text());
        let answer = put(&client, &files_path(&id, "", &format!("path={path}")), "x").await;
        assert!(matches!(answer.status, 403 | 404 | 409), "{path}: {}", answer.text());
    }
    assert!(client.get(&files_path(&id, "/tar", "path=/proc/self/fd")).await.unwrap().status < 500);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    // A range of a huge sparse file.
    let answer = client
        .call(Method::GET, &files_path(&id, "", "path=endless"))
        .header("range", "bytes=1000000000000-1000000000009");
    assert_eq!(answer.send().await.unwrap().body, vec![0; 10]);
    // Other requests work during endless reads.
    let mut raw = [None, None, None];
    for raw in &mut raw {
        *raw = Some(start_endless_read(&service, &client, &id).await);
    }
    assert_eq!(output(&client, &id, "echo beside").await, "beside\n");
    drop(raw);
    let left = "pgrep -c sandbox-agent || true";
    wait_until("the endless reads have ended", async || output(&client, &id, left).await == "1\n").await;
}

async fn start_endless_read(service: &Service, client: &Client, id: &str) -> Raw {
    let mut raw = service.raw().await.unwrap();
    let path = files_path(id, "", "path=endless");
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\r\n",
        client.authorization()
    );
    assert!(raw.write(head.as_bytes()).await);
    let head = raw.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    raw
}

#[tokio::test]
async fn links_do_not_lead_to_the_host() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let secret = service.layout.data.join("host-secret");
    std::fs::write(&secret, "of the host").unwrap();
    let secret = secret.display();
    output(
        &client,
        &id,
        &format!("ln -s {secret} direct; ln -s /proc/1/root{secret} by-proc; ln -s /../../../..{secret} up"),
    )
    .await;
    for path in [
        "direct",
        "by-proc",
        "up",
        &format!("/proc/1/root{secret}"),
        &format!("/proc/1/cwd/../../..{secret}"),
        &format!("../../../..{secret}"),
    ] {
        let answer = read(&client, &id, path).await;
        assert!(matches!(answer.status, 403 | 404), "{path}: {}", answer.text());
    }
    // An archive that writes through a link.
    output(&client, &id, "mkdir out evil && ln -s /workspace/out evil/l && tar -cf evil.tar -C evil l && rm evil/l && mkdir evil/l && echo x > evil/l/f && tar -rf evil.tar -C evil l/f").await;
    let evil = read(&client, &id, "evil.tar").await.body.to_vec();
    let refused = put(&client, &files_path(&id, "/tar", "path=into"), evil)
        .await
        .error(400, "INVALID_REQUEST")
        .unwrap();
    assert!(text(&refused["message"]).contains("through a symbolic link or a file"), "{refused}");
    assert_eq!(output(&client, &id, "ls out").await, "");
}

#[tokio::test]
async fn a_full_disk_and_a_changing_tree_are_reported() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    // The sandbox's shared memory is a small file system.
    output(&client, &id, "head -c 900000000 /dev/zero > /dev/shm/fill").await;
    let big = vec![7; 300_000_000];
    put(&client, &files_path(&id, "", "path=/dev/shm/f"), big).await.error(507, "DISK_FULL").unwrap();
    assert_eq!(output(&client, &id, "ls -A /dev/shm").await, "fill\n");
    output(&client, &id, "rm /dev/shm/fill; mkdir tree; (while :; do for i in $(seq 50); do mkdir -p tree/$i/x; echo $i > tree/$i/f; done; rm -rf tree/*; done) >/dev/null 2>&1 & true").await;
    for _ in 0..20 {
        let answer = client.get(&files_path(&id, "/tar", "path=tree")).await;
        assert!(answer.is_ok_and(|answer| answer.status == 200));
        let answer = client.get(&files_path(&id, "/list", "path=tree")).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let gone = client.delete(&files_path(&id, "", "path=tree&recursive=true")).await.unwrap();
    assert!(matches!(gone.status, 200 | 409 | 404), "{}", gone.text());
}

#[tokio::test]
async fn a_huge_directory_is_listed_by_page_in_bounded_memory() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let many = 120_000;
    output(&client, &id, &format!("mkdir /dev/shm/m && cd /dev/shm/m && seq {many} | xargs touch")).await;
    let before = service.resident_kb().unwrap();
    for offset in [0, 100_000, many - 50, many + 5] {
        let page =
            client.get(&files_path(&id, "/list", &format!("path=/dev/shm/m&offset={offset}"))).await.unwrap();
        let page = page.is(200).unwrap();
        assert_eq!(page["pagination"]["total"], many);
        let expected = usize::try_from((many - offset.min(many)).min(20)).unwrap();
        assert_eq!(page["data"].as_array().unwrap().len(), expected, "{offset}");
    }
    assert!(
        service.resident_kb().unwrap() < before + 20_000,
        "{before} KiB grew to {}",
        service.resident_kb().unwrap()
    );
    let gone =
        client.delete(&files_path(&id, "", "path=/dev/shm/m&recursive=true")).await.unwrap().is(200).unwrap();
    assert_eq!(gone["deleted"], many + 1);
}

#[tokio::test]
async fn concurrent_file_operations_are_limited() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    output(&client, &id, "truncate -s 10T endless").await;
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(start_endless_read(&service, &client, &id).await);
    }
    read(&client, &id, "/etc/passwd").await.error(429, "RATE_LIMITED").unwrap();
    drop(held);
    wait_until("slots are free", async || read(&client, &id, "/etc/passwd").await.status == 200).await;
}

#[tokio::test]
async fn a_large_upload_uses_bounded_memory() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    write(&client, &id, "warm", vec![1; 10_000_000]).await;
    let before = service.resident_kb().unwrap();
    let mut raw = service.raw().await.unwrap();
    let total = 400_000_000;
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\ncontent-length: {total}\r\n\r\n",
        files_path(&id, "", "path=big"),
        client.authorization()
    );
    assert!(raw.write(head.as_bytes()).await);
    let piece = vec![5; 1_000_000];
    let mut most = 0;
    for _ in 0..total / piece.len() {
        assert!(raw.write(&piece).await);
        most = most.max(service.resident_kb().unwrap());
    }
    assert_eq!(raw.answer().await.unwrap().is(200).unwrap()["sizeBytes"], total);
    // With a margin, because other tests use the same service.
    assert!(most < before + 40_000, "{before} KiB grew to {most}");
}
