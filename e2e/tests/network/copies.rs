//! Copies of processes that send without a pause: the policy of the new sandbox is in force before their first packet.

use std::time::Duration;

use e2e::internet;
use e2e::service::Client;
use serde_json::{Value, json};

use crate::guest::{Guest, python};
use crate::{SANDBOXES, shared_net, text, wait_until};

const UDP: u8 = 17;
const PORT: u16 = 7777;

async fn create(client: &Client, image: &str, egress: Value) -> String {
    let body = json!({
        "image": image,
        "isolation": "gvisor",
        "resources": { "memoryMb": 2048, "diskMb": 5120 },
        "timeoutMs": 3_600_000,
        "idleTimeoutMs": 0,
        "network": { "egress": egress },
    });
    text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"])
}

#[tokio::test]
async fn no_packet_leaves_before_the_policy_is_in_force() {
    let net = shared_net().await;
    let site = net.site("copied-sender");
    let client = net.service.account().await.unwrap();
    let count = || net.internet.packets().count(site.address, UDP, PORT);
    let id = create(&client, internet::image::IMAGE, json!({ "default": "allow" })).await;
    let source = Guest { net: &net, client: client.clone(), id };
    let sender = python(&format!(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nn = 0\nwhile True:\n    n += 1\n\
         \x20   try: s.sendto(b'x', ('{}', {PORT}))\n    except OSError: pass\n\
         \x20   open('/sent', 'w').write(str(n))\n    time.sleep(0.001)",
        site.address
    ));
    source
        .output(&format!("setsid bash -c '{}' < /dev/null > /dev/null 2>&1 &", sender.replace('\'', r"'\''")))
        .await;
    wait_until("the sender sends", async || count() > 5).await;
    let taken = client.post(&source.path("snapshots"), &json!({ "memory": true })).await.unwrap();
    let snapshot = text(&taken.is(201).unwrap()["id"]);
    source.terminate().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = count();
    for _ in 0..5 {
        let copy = create(&client, &snapshot, json!({ "default": "deny", "allow": [] })).await;
        let copy = Guest { net: &net, client: client.clone(), id: copy };
        let sent = copy.output("cat /sent").await;
        wait_until("the copy sends", async || copy.output("cat /sent").await != sent).await;
        assert_eq!(count(), before, "packets have left the copy");
        copy.terminate().await;
    }
    // Under a policy that allows it the same process reaches the host, from the address of its own sandbox.
    let copy = create(&client, &snapshot, json!({ "default": "allow" })).await;
    wait_until("packets arrive", async || count() > before + 5).await;
    client.delete(&format!("{SANDBOXES}/{copy}")).await.unwrap().is(200).unwrap();
}
