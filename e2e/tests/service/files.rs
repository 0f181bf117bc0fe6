//! File operations and watches.

mod hostile;
mod operations;
mod watches;

use e2e::service::{Client, HttpResponse};
use hyper::Method;
use serde_json::Value;

use crate::SANDBOXES;

/// The path of a file operation; `operation` is empty for the content itself.
pub fn files_path(id: &str, operation: &str, query: &str) -> String {
    format!("{SANDBOXES}/{id}/files{operation}?{query}")
}

pub async fn put(client: &Client, path: &str, body: impl Into<Vec<u8>>) -> HttpResponse {
    client.call(Method::PUT, path).body("application/octet-stream", body.into()).send().await.unwrap()
}

pub async fn write(client: &Client, id: &str, path: &str, body: impl Into<Vec<u8>>) -> Value {
    put(client, &files_path(id, "", &format!("path={path}")), body).await.is(200).unwrap()
}

pub async fn read(client: &Client, id: &str, path: &str) -> HttpResponse {
    client.get(&files_path(id, "", &format!("path={path}"))).await.unwrap()
}
