//! Request bodies of the control plane. An absent field and `null` are the same, and unknown fields are ignored.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::E2bError;

const MAX_BYTES: usize = 1 << 20;

/// The body of a create.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSandbox {
    #[serde(rename = "templateID")]
    pub template_id: String,
    pub timeout: Option<i64>,
    pub auto_pause: Option<bool>,
    /// Whether the pause at the timeout keeps the processes. By default it does.
    pub auto_pause_memory: Option<bool>,
    pub auto_resume: Option<AutoResume>,
    pub secure: Option<bool>,
    #[serde(rename = "allow_internet_access")]
    pub allow_internet_access: Option<bool>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub env_vars: Option<BTreeMap<String, String>>,
    pub network: Option<Network>,
    pub iam: Option<Value>,
    pub volume_mounts: Option<Vec<Value>>,
}

#[derive(Debug, Default, Deserialize)]
pub struct AutoResume {
    pub enabled: Option<bool>,
}

/// The network of a create, and the body of a change.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    pub allow_out: Option<Vec<String>>,
    pub deny_out: Option<Vec<String>>,
    pub allow_public_traffic: Option<bool>,
    pub mask_request_host: Option<String>,
    pub https_ports: Option<Vec<Value>>,
    pub dns_servers: Option<Vec<Value>>,
    pub egress_proxy: Option<Value>,
    pub rules: Option<BTreeMap<String, Value>>,
    #[serde(rename = "allow_internet_access")]
    pub allow_internet_access: Option<bool>,
}

/// The body of a pause.
#[derive(Debug, Default, Deserialize)]
pub struct Pause {
    /// Whether the processes are kept. By default they are.
    pub memory: Option<bool>,
}

/// The body of a snapshot.
#[derive(Debug, Default, Deserialize)]
pub struct NewSnapshot {
    pub name: Option<String>,
    /// Whether it has the processes. By default it has, if the isolation of the sandbox can.
    pub memory: Option<bool>,
}

/// The body of a fork.
#[derive(Debug, Default, Deserialize)]
pub struct Fork {
    /// Seconds.
    pub timeout: Option<i64>,
    pub count: Option<i64>,
}

/// The body of connect, resume, and a change of the timeout.
#[derive(Debug, Default, Deserialize)]
pub struct Timeout {
    /// Seconds.
    #[serde(alias = "duration")]
    pub timeout: Option<i64>,
    /// Whether a resume keeps the processes. By default it does.
    pub memory: Option<bool>,
}

/// Reads a JSON body. An empty body is an empty object.
pub async fn read<T: DeserializeOwned>(body: Body) -> Result<T, E2bError> {
    parse(&collect(body).await?)
}

/// The bytes of a body.
pub async fn collect(body: Body) -> Result<Bytes, E2bError> {
    let content = Limited::new(body, MAX_BYTES).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("the body is larger than {MAX_BYTES} bytes");
            E2bError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        } else {
            E2bError::invalid("the body ended early")
        }
    })?;
    Ok(content.to_bytes())
}

/// The content of a JSON body. An empty body is an empty object.
pub fn parse<T: DeserializeOwned>(content: &[u8]) -> Result<T, E2bError> {
    let text = if content.is_empty() { b"{}" } else { content };
    serde_json::from_slice(text).map_err(|error| E2bError::invalid(format!("the body is invalid: {error}")))
}
