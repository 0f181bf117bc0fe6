//! Keys with few rights.

use e2e::service::Service;
use e2e::wait_until;
use serde_json::Value;

use crate::{Address, E2bService, Language, create_key};

const WITHOUT_EXECUTE: &str = "read,write";
const PROBE: &str = "probe";

/// Revokes the keys whose label or account is this.
fn revoke(service: &Service, name: &str) {
    let listed = service.program().unwrap().args(["key", "list", "--json"]).output().unwrap();
    let keys: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let of_name = |key: &&Value| key["label"] == name || key["account"] == name;
    for key in keys.as_array().unwrap().iter().filter(of_name) {
        let id = key["id"].as_str().unwrap();
        let revoked = service.program().unwrap().args(["key", "revoke", id]).status().unwrap();
        assert!(revoked.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_without_execute_get_no_tokens_and_revoked_ones_are_refused() {
    let e2b = E2bService::start().await;
    let Some(packages) = Language::Python.packages() else { return };
    let command = |case: &str| {
        let mut command = Language::Python.command(&packages[0], "keys");
        command.arg(case).env("FULL_KEY", &e2b.key);
        command
    };
    let limited = create_key(&e2b.service, WITHOUT_EXECUTE).await;
    e2b.passes_with(&limited, Address::Domain, command("limited")).await;

    let probe = e2b.service.client_with_new_key(PROBE, "read").await.unwrap();
    revoke(&e2b.service, WITHOUT_EXECUTE);
    // The service reads revocations in their order.
    revoke(&e2b.service, PROBE);
    wait_until("the last key is revoked", async || probe.get("/v1/sandboxes").await.unwrap().status == 401)
        .await;
    e2b.passes_with(&limited, Address::Domain, command("revoked")).await;
}
