//! Templates and their builds.

mod builds;
mod corpus;
mod hostile;
mod instructions;
mod kills;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::service::{Client, Event, Service, small, with};
use hyper::Method;
use serde_json::{Value, json};

use crate::{SANDBOXES, text};

pub const TEMPLATES: &str = "/v1/templates";

/// An archive in base64. A name that ends in `/` is a directory, and content `-> x` a symbolic link.
pub fn context(files: &[(&str, &str)]) -> String {
    STANDARD.encode(archive(files))
}

pub fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(if name.ends_with(".sh") { 0o755 } else { 0o640 });
        header.set_mtime(1_000_000_000);
        header.set_size(0);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o750);
            archive.append_data(&mut header, name, std::io::empty()).unwrap();
        } else if let Some(target) = content.strip_prefix("-> ") {
            header.set_entry_type(tar::EntryType::Symlink);
            archive.append_link(&mut header, name, target).unwrap();
        } else {
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
    }
    archive.into_inner().unwrap()
}

pub fn path(id: &str) -> String {
    format!("{TEMPLATES}/{id}")
}

pub fn dockerfile(instructions: &str) -> String {
    format!("FROM {}\n{instructions}", Service::image())
}

pub fn body(name: &str, instructions: &str) -> Value {
    let small = small();
    json!({
        "name": name, "dockerfile": dockerfile(instructions),
        "resources": small["resources"], "isolation": e2e::isolation(),
    })
}

/// Accepts a build, and returns its id.
pub async fn accept(client: &Client, body: &Value) -> String {
    text(&client.post(TEMPLATES, body).await.unwrap().is(201).unwrap()["id"])
}

/// All events of the log.
pub async fn log(client: &Client, id: &str) -> Vec<Event> {
    let client = client.with_own_connections();
    client.call(Method::GET, &format!("{}/logs", path(id))).stream().await.unwrap().rest().await.unwrap()
}

/// Waits for the end of a build, and returns the template.
pub async fn finished(client: &Client, id: &str) -> Value {
    let events = log(client, id).await;
    assert_eq!(events.last().unwrap().name, "done", "{events:?}");
    events.last().unwrap().json().unwrap()
}

/// A build that must succeed.
pub async fn build(client: &Client, body: &Value) -> Value {
    let id = accept(client, body).await;
    let template = finished(client, &id).await;
    assert_eq!(template["state"], "ready", "{template} {:?}", log(client, &id).await);
    template
}

/// A build that must fail: its error.
pub async fn failure(client: &Client, body: &Value) -> Value {
    let id = accept(client, body).await;
    let template = finished(client, &id).await;
    assert_eq!(template["state"], "failed", "{template}");
    template["error"].clone()
}

pub async fn create_from(client: &Client, image: &str) -> String {
    let body = with(with(small(), "image", json!(image)), "isolation", json!(e2e::isolation()));
    text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"])
}
