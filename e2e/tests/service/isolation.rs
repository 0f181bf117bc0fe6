//! Several isolation backends in one service: what callers and the operator choose, the warm pool of each, and what is shown.

use e2e::service::{Client, Service, ServiceOptions, sample, small, with};
use serde_json::{Value, json};

use crate::{SANDBOXES, action_path, output, sandbox_path, state, text, wait_until};

const BOTH: [&str; 2] = ["container", "gvisor"];

fn isolated(by: &str) -> Value {
    with(small(), "isolation", json!(by))
}

async fn create(client: &Client, body: Value) -> Value {
    client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()
}

/// The isolation in the view, after a check that it is the actual one: gVisor's kernel has a version of its own.
async fn isolation(client: &Client, sandbox: &Value) -> String {
    let (id, shown) = (text(&sandbox["id"]), text(&sandbox["isolation"]));
    let kernel = output(client, &id, "cat /proc/version").await;
    assert_eq!(kernel.starts_with("Linux version 4.4.0 "), shown == "gvisor", "{shown}: {kernel}");
    let view = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert_eq!(view["isolation"], sandbox["isolation"]);
    shown
}

async fn refused(client: &Client, body: &Value) -> String {
    let error = client.post(SANDBOXES, body).await.unwrap().error(400, "INVALID_CONFIG").unwrap();
    text(&error["message"])
}

#[tokio::test]
async fn both_run_in_one_service_and_survive_its_restart() {
    let options = ServiceOptions::default().with("isolation", "default", "\"container\"");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let mut ids = Vec::new();
    for by in BOTH {
        let sandbox = create(&client, isolated(by)).await;
        assert_eq!(isolation(&client, &sandbox).await, by);
        let id = text(&sandbox["id"]);
        output(&client, &id, "echo kept > f; sleep 1000 >/dev/null 2>&1 &").await;
        ids.push(id);
    }
    for body in [small(), isolated("auto")] {
        assert_eq!(isolation(&client, &create(&client, body).await).await, "container");
    }
    let shown = service.read_metrics().await.unwrap();
    for (by, count) in [("container", 3.0), ("gvisor", 1.0)] {
        let labels = [format!("isolation=\"{by}\""), "state=\"running\"".to_owned()];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        assert_eq!(sample(&shown, "sandboxd_sandboxes_by_isolation", &labels), count, "{by}");
    }
    // One of each is killed while paused, and both are stopped by a restart of their processes.
    for id in &ids {
        client.post_empty(&action_path(id, "pause")).await.unwrap().is(200).unwrap();
    }
    service.kill().unwrap();
    service.start_process().await.unwrap();
    for (id, by) in ids.iter().zip(BOTH) {
        assert_eq!(state(&client, id).await, "paused");
        client.post_empty(&action_path(id, "resume")).await.unwrap().is(200).unwrap();
        let view = client.get(&sandbox_path(id)).await.unwrap().is(200).unwrap();
        assert_eq!(isolation(&client, &view).await, by);
        assert_eq!(output(&client, id, "cat f; cat /proc/[0-9]*/comm | grep -c sleep").await, "kept\n1\n");
    }
    for id in &ids {
        client.delete(&sandbox_path(id)).await.unwrap().is(200).unwrap();
    }
}

#[tokio::test]
async fn an_unavailable_or_unknown_isolation_is_refused_with_the_available_ones() {
    let options = ServiceOptions::default().with("isolation", "default", "\"container\"").with(
        "isolation",
        "gvisor.program",
        "\"off\"",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let message = refused(&client, &isolated("gvisor")).await;
    assert_eq!(message, "isolation is 'gvisor'; allowed: 'auto' or 'container'");
    let message = refused(&client, &isolated("vm")).await;
    assert!(message.starts_with("isolation is 'vm'; allowed: "), "{message}");
    let body = with(small(), "isolation", json!(1));
    client.post(SANDBOXES, &body).await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    let info = client.get("/v1/info").await.unwrap().is(200).unwrap();
    let backend =
        json!({ "name": "container", "network": true, "memorySnapshots": false, "hibernation": false });
    assert_eq!(info["backends"], json!([backend]));
}

#[tokio::test]
async fn the_operator_chooses_by_image_and_account_and_sets_a_minimum() {
    let image = format!("isolation.images.\"{}\"", Service::image());
    let options = ServiceOptions::default()
        .with("isolation", "default", "\"container\"")
        .with("isolation.accounts.\"careful\"", "default", "\"gvisor\"")
        .with("isolation.accounts.\"strict\"", "minimum", "\"gvisor\"");
    let service = Service::start(&options).await.unwrap();
    let client =
        async |account: &str| service.client_with_new_key(account, "read,execute,write").await.unwrap();
    for (account, auto, minimum) in [
        ("any", "container", "container"),
        ("careful", "gvisor", "container"),
        ("strict", "gvisor", "gvisor"),
    ] {
        let client = client(account).await;
        assert_eq!(isolation(&client, &create(&client, small()).await).await, auto, "{account}");
        let info = client.get("/v1/info").await.unwrap().is(200).unwrap();
        assert_eq!((&info["defaultIsolation"], &info["minimumIsolation"]), (&json!(auto), &json!(minimum)));
        if minimum == "gvisor" {
            let message = refused(&client, &isolated("container")).await;
            assert_eq!(message, "isolation is 'container'; allowed: 'auto' or 'gvisor'");
        } else {
            assert_eq!(isolation(&client, &create(&client, isolated("container")).await).await, "container");
        }
    }
    let leaked: Box<str> = image.into();
    let options = ServiceOptions::default().with("isolation", "default", "\"container\"").with(
        Box::leak(leaked),
        "minimum",
        "\"gvisor\"",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    assert_eq!(isolation(&client, &create(&client, small()).await).await, "gvisor");
    refused(&client, &isolated("container")).await;
}

#[tokio::test]
async fn each_isolation_has_its_own_warm_pool() {
    let pool = format!("{{ {:?} = 1 }}", Service::image());
    let options = ServiceOptions::default()
        .with("isolation", "default", "\"container\"")
        .with("isolation", "gvisor.pool", &pool)
        .with("pool", &format!("{:?}", Service::image()), "2");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let by_isolation = async |name: &str, by: &str, more: &str| {
        let label = format!("isolation=\"{by}\"");
        sample(&service.read_metrics().await.unwrap(), name, &[label.as_str(), more])
    };
    for (by, count) in [("container", 2.0), ("gvisor", 1.0)] {
        wait_until("the pool is full", async || {
            by_isolation("sandboxd_pool_ready_by_isolation", by, "image=").await >= count
        })
        .await;
    }
    for by in BOTH {
        let body = json!({ "image": Service::image(), "isolation": by });
        assert_eq!(isolation(&client, &create(&client, body).await).await, by);
        assert_eq!(by_isolation("sandboxd_created_by_isolation_total", by, "source=\"pool\"").await, 1.0);
    }
}
