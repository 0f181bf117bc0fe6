//! The commands of the operations guide that remove the service from a machine leave nothing of it.

use std::path::Path;

use e2e::service::Service;
use e2e::{Expected, strays};
use serde_json::json;

use super::{
    SHOWN_DATA_DIR, assert_keys_are_revoked, document, for_all_accounts, operator_commands, section, service,
    shell, stop,
};

/// The heading whose commands remove the service.
pub const REMOVE: &str = "## Remove";

/// A command with the directories of this service, whose data is in `data`. Those that no test may touch are below `root`.
fn adapted(service: &Service, command: &str, data: &Path, root: &Path) -> String {
    let name = &service.layout.name;
    let adapted = command
        .replace(SHOWN_DATA_DIR, &data.display().to_string())
        .replace("/run/sandboxd", &service.layout.run.display().to_string())
        .replace("-name sandboxd", &format!("-name {name}"));
    ["/etc/", "/usr/local/"].into_iter().fold(adapted, |command, directory| {
        command.replace(&format!(" {directory}"), &format!(" {}{directory}", root.display()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_that_remove_the_service_leave_nothing() {
    let service = service().await;
    let client = service.account().await.unwrap();
    let create = async || {
        let created = client.post("/v1/sandboxes", &json!({ "image": Service::image() })).await.unwrap();
        created.is(201).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let (first, _second) = (create().await, create().await);
    client.post(&format!("/v1/sandboxes/{first}/snapshots"), &json!({})).await.unwrap().is(201).unwrap();

    let (root, data) = (tempfile::tempdir().unwrap(), service.layout.data.canonicalize().unwrap());
    let programs =
        ["sandboxd", "sandbox-agent", "sandbox-launcher", "sbx"].map(|name| format!("usr/local/bin/{name}"));
    let unit = "etc/systemd/system/sandboxd.service".to_owned();
    for file in programs.iter().chain([&unit]) {
        let file = root.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    }
    for command in operator_commands(section(&document("docs/operations.md"), REMOVE)) {
        match command.as_str() {
            "systemctl disable --now sandboxd" => stop(&service).await,
            command if command.starts_with('(') => {
                for_all_accounts(&service, command, root.path());
                assert_keys_are_revoked(&service, "removal");
            }
            command => shell(&adapted(&service, command, &data, root.path())),
        }
    }

    let strays = strays(&service.layout, &Expected::default());
    assert!(strays.is_empty(), "{strays:?}");
    assert!(!service.layout.data.exists() && !service.layout.run.exists());
    shell(&format!("! find /sys/fs/cgroup -maxdepth 3 -name {} -type d | grep .", service.layout.name));
    shell(&format!("! find {} -type f | grep .", root.path().display()));
}
