//! The default capacity fits a hundred sandboxes of the default size on a personal machine.

use e2e::service::{Service, ServiceOptions};
use futures_util::StreamExt;
use serde_json::json;

use crate::{SANDBOXES, output, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_sandboxes_of_the_default_size_run_concurrently() {
    let service = Service::start(&ServiceOptions::default().default_capacity()).await.unwrap();
    // 100 disks of 10 GB with an overcommit of 32, and the reserve.
    let free_gb = service.free_bytes().unwrap() >> 30;
    assert!(free_gb >= 34, "this test needs 34 GB of free disk; there are {free_gb}");
    let client = service.account().await.unwrap();
    let start = std::time::Instant::now();
    let create = |number: u32| {
        let client = client.clone();
        async move {
            let body = json!({ "image": Service::image(), "timeoutMs": 3_600_000, "idleTimeoutMs": 0 });
            let sandbox = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
            let id = text(&sandbox["id"]);
            assert_eq!(output(&client, &id, &format!("echo {number}")).await, format!("{number}\n"));
            id
        }
    };
    let ids: Vec<String> = futures_util::stream::iter(0..100).map(create).buffer_unordered(4).collect().await;
    let list = client.get(&format!("{SANDBOXES}?state=running&limit=1")).await.unwrap().is(200).unwrap();
    assert_eq!(list["pagination"]["total"], 100);
    // All of them run another command.
    for id in &ids {
        assert_eq!(output(&client, id, "nproc").await, "2\n");
    }
    eprintln!("100 sandboxes, 200 commands: {:.1} s", start.elapsed().as_secs_f64());
}
