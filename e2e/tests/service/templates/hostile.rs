//! Archives, Dockerfiles and uploads that are made to exhaust the daemon: its memory, its processors, its disk, and its next starts.

use e2e::service::{Client, HttpResponse, Raw, Service, ServiceOptions, with};
use hyper::Method;
use serde_json::json;

use crate::templates::{accept, archive, body, build, failure, finished, log, path};
use crate::{SANDBOXES, text, user, wait_until};

const CONTEXTS: &str = "/v1/templates/contexts";
/// The daemon may use this much more for uploads, one after the other.
const MAX_KB: u64 = 32_000;

async fn upload(client: &Client, content: Vec<u8>) -> HttpResponse {
    client.call(Method::POST, CONTEXTS).body("application/x-tar", content).send().await.unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A header whose data the tar library reads whole.
fn long_header(kind: tar::EntryType, bytes: usize) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(bytes as u64);
    header.set_cksum();
    archive.append(&header, &vec![b'a'; bytes][..]).unwrap();
    archive.into_inner().unwrap()
}

fn deep_directories() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for at in 0..200 {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        archive.append_data(&mut header, format!("{at}/{}f", "d/".repeat(2040)), &b""[..]).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Measures the peak from here on.
fn forget_peak(service: &Service) {
    std::fs::write(format!("/proc/{}/clear_refs", service.pid().unwrap()), "5").unwrap();
}

fn spooled(service: &Service) -> usize {
    let found = std::fs::read_dir(service.layout.data.join("builds")).unwrap();
    found.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("incoming-")).count()
}

#[tokio::test]
async fn archives_take_little_memory_of_the_daemon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    upload(&client, archive(&[("file", "x")])).await.is(201).unwrap();
    for (name, content, reason) in [
        ("long name", long_header(tar::EntryType::GNULongName, 900 << 20), "headers of one entry"),
        ("records", long_header(tar::EntryType::XHeader, 900 << 20), "headers of one entry"),
        ("deep directories", deep_directories(), "entries"),
    ] {
        let packed = gzip(&content);
        drop(content);
        for _ in 0..3 {
            // Part of what an earlier upload freed stays with the daemon.
            forget_peak(&service);
            let before = service.resident_kb().unwrap();
            let error = upload(&client, packed.clone()).await.error(400, "INVALID_CONFIG").unwrap();
            assert!(text(&error["message"]).contains(reason), "{name}: {error}");
            let peak = e2e::process::peak_kb(service.pid().unwrap()).unwrap() - before;
            println!("{name}: {} bytes, {peak} kB", packed.len());
            // The body of the request is in memory, too.
            assert!(peak <= MAX_KB + (packed.len() as u64 >> 10), "{name} takes {peak} kB");
        }
    }
    assert_eq!(spooled(&service), 1);
    forget_peak(&service);
    let before = service.resident_kb().unwrap();
    let bomb = long_header(tar::EntryType::GNULongName, 900 << 20);
    let context = gzip(&archive_of("bomb.tar.gz", &gzip(&bomb)));
    let id = upload(&client, context).await.is(201).unwrap()["id"].clone();
    let failed = failure(&client, &with(body("bomb", "ADD bomb.tar.gz /"), "context", id)).await;
    assert!(text(&failed["message"]).contains("headers of one entry"), "{failed}");
    let peak = e2e::process::peak_kb(service.pid().unwrap()).unwrap() - before;
    println!("ADD: {peak} kB");
    assert!(peak <= MAX_KB, "ADD takes {peak} kB");
}

fn archive_of(name: &str, content: &[u8]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, content).unwrap();
    archive.into_inner().unwrap()
}

/// Starts an upload and sends a part of it.
async fn half_upload(service: &Service, client: &Client) -> Raw {
    let mut raw = service.raw().await.unwrap();
    let head = format!(
        "POST {CONTEXTS} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\ncontent-type: application/x-tar\r\n\
         content-length: 50000000\r\n\r\n",
        client.authorization()
    );
    // The service closes the connection if it refuses the upload.
    let _ = raw.write(head.as_bytes()).await && raw.write(&vec![0; 1 << 20]).await;
    raw
}

#[tokio::test]
async fn uploads_in_progress_are_bounded_and_leave_nothing() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let (client, other) = (service.account().await.unwrap(), service.account().await.unwrap());
    let mut uploads = Vec::new();
    for _ in 0..60 {
        uploads.push(half_upload(&service, &client).await);
    }
    wait_until("the uploads are written", async || spooled(&service) == 16).await;
    let refused = upload(&client.with_own_connections(), archive(&[("file", "x")])).await;
    assert!(refused.header("retry-after").is_some());
    let refused = refused.error(429, "RATE_LIMITED").unwrap();
    assert!(text(&refused["message"]).contains("16 uploads of the account"), "{refused}");
    upload(&other, archive(&[("file", "x")])).await.is(201).unwrap();
    // Clients that disconnect.
    drop(uploads);
    wait_until("the uploads are removed", async || spooled(&service) == 1).await;
    upload(&client.with_own_connections(), archive(&[("file", "x")])).await.is(201).unwrap();
    // A daemon that is killed.
    let halves = [half_upload(&service, &client).await, half_upload(&service, &client).await];
    wait_until("the uploads are written", async || spooled(&service) == 4).await;
    service.kill().unwrap();
    drop(halves);
    service.start_process().await.unwrap();
    assert_eq!(spooled(&service), 0);
}

#[tokio::test]
async fn wildcards_end_with_the_timeout_and_the_cancel_of_their_build() {
    let (_service, client) = user().await;
    let names: Vec<String> = (0..2600).map(|at| format!("{}{at}", "a".repeat(3900))).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let context = upload(&client, archive(&files)).await.is(201).unwrap()["id"].clone();
    let few = upload(&client, archive(&[(&*"a".repeat(200), "")])).await.is(201).unwrap()["id"].clone();
    for stars in [8, 14] {
        let asked = with(body("stars", &format!("COPY {}b /", "*a".repeat(stars))), "context", few.clone());
        let failed = failure(&client, &asked).await;
        // Not: too many comparisons.
        assert!(text(&failed["message"]).contains("nothing at"), "{failed}");
    }
    let slow = format!("COPY *{}b /x/\n", "a".repeat(1900)).repeat(100);
    let slow = with(body("slow", &slow), "context", context);
    let failed = failure(&client, &with(slow.clone(), "timeoutMs", json!(300))).await;
    assert!(text(&failed["message"]).contains("longer than 300 ms"), "{failed}");
    let mut state = json!(null);
    // Planning ends by itself after a second, which may be before the cancel arrives.
    for _ in 0..5 {
        let id = accept(&client, &slow).await;
        wait_until("the build runs", async || {
            client.get(&path(&id)).await.unwrap().is(200).unwrap()["state"] != "queued"
        })
        .await;
        let cancel = client.post_empty(&format!("{}/cancel", path(&id))).await.unwrap();
        state = cancel.is(200).unwrap()["state"].clone();
        if state == "cancelled" {
            break;
        }
    }
    assert_eq!(state, "cancelled");
}

#[tokio::test]
async fn a_build_that_ends_the_daemon_twice_is_given_up() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let is_at = async |id: &str, steps: u64| {
        wait_until("the step runs", async || {
            let template = client.get(&path(id)).await.unwrap().is(200).unwrap();
            let running = client.get(&format!("{SANDBOXES}?state=running")).await.unwrap().is(200).unwrap();
            template["steps"]["done"] == steps && running["pagination"]["total"] == 1
        })
        .await;
    };
    // It completes a step between the kills.
    let other = accept(&client, &body("other", "RUN sleep 10\nRUN true")).await;
    is_at(&other, 0).await;
    service.kill().unwrap();
    service.start_process().await.unwrap();
    assert_eq!(finished(&client, &other).await["state"], "ready");
    let id = accept(&client, &body("fatal", "RUN true\nRUN sleep 600")).await;
    for _ in 0..2 {
        is_at(&id, 1).await;
        service.kill().unwrap();
        service.start_process().await.unwrap();
    }
    let template = finished(&client, &id).await;
    assert_eq!(template["state"], "failed");
    assert!(text(&template["error"]["message"]).contains("ended unexpectedly 2 times"), "{template}");
    assert!(log(&client, &id).await.iter().any(|event| event.data.contains("unexpectedly")));
    let events = client.get("/v1/events?type=template.failed").await.unwrap().is(200).unwrap();
    assert_eq!(events["pagination"]["total"], 1, "{events}");
    // Orderly ends do not count.
    let patient = accept(&client, &body("patient", "RUN sleep 11")).await;
    for _ in 0..3 {
        is_at(&patient, 0).await;
        service.restart().await.unwrap();
    }
    assert_eq!(finished(&client, &patient).await["state"], "ready");
    assert_eq!(build(&client, &body("other", "RUN true")).await["state"], "ready");
}
