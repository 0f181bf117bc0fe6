//! Request bodies of the control plane. An absent field and `null` are the same, and unknown fields are ignored: clients of later
//! versions send them. Only in bodies that decide what a sandbox can reach, another spelling of a known field is refused.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::Call;
use crate::error::E2bError;

const MAX_BYTES: usize = 1 << 20;
/// Most values and names in a body, of which each takes up to some 200 bytes of memory.
const MAX_VALUES: usize = 16_384;

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

impl Call {
    /// Reads a JSON body. An empty body is an empty object.
    pub(super) async fn read<T: DeserializeOwned>(&self, body: Body) -> Result<T, E2bError> {
        parse(&self.collect(body).await?)
    }

    /// The bytes of a body, which count towards the account's memory for request bodies.
    pub(super) async fn collect(&self, mut body: Body) -> Result<Bytes, E2bError> {
        let memory = &self.api.service.gate.request_memory;
        let mut content = memory.body(&self.caller.account, MAX_BYTES);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| E2bError::invalid("the body ended early"))?;
            let Ok(data) = frame.into_data() else { continue };
            if content.received() + data.len() > MAX_BYTES {
                let message = format!("the body is larger than {MAX_BYTES} bytes");
                return Err(E2bError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            content.add(&data).await?;
        }
        Ok(content.done())
    }
}

/// The content of a JSON body. An empty body is an empty object.
pub fn parse<T: DeserializeOwned>(content: &[u8]) -> Result<T, E2bError> {
    let text = checked(content)?;
    serde_json::from_slice(text).map_err(|error| E2bError::invalid(format!("the body is invalid: {error}")))
}

/// The same for a body whose fields bound a sandbox. A field with a known name in another spelling or in another object is refused:
/// ignored, it would leave the network open without a word.
pub fn parse_bounds<T: DeserializeOwned>(content: &[u8]) -> Result<T, E2bError> {
    match reader::respelled_field::<T>(checked(content)?) {
        Some(unknown) => Err(E2bError::invalid(unknown.to_string())),
        None => parse(content),
    }
}

/// The body of a change of a network, which replaces the whole policy.
pub fn parse_network(content: &[u8]) -> Result<Network, E2bError> {
    let Wrapped { network } = parse(content)?;
    if network.is_some() {
        let message = "network is an unknown field; its fields are those of the body, such as 'denyOut'";
        return Err(E2bError::invalid(message));
    }
    parse_bounds(content)
}

/// A network as a create has it. Ignored, it would be replaced by an open one.
#[derive(Deserialize)]
struct Wrapped {
    network: Option<IgnoredAny>,
}

/// The text of a body that is small enough when it is parsed.
fn checked(content: &[u8]) -> Result<&[u8], E2bError> {
    let text = if content.is_empty() { b"{}" } else { content };
    reader::check_shape(text, MAX_VALUES).map_err(|refusal| E2bError::invalid(refusal.to_string()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All fields that clients of E2B send, with those that this service ignores.
    const CREATE: &str = r#"{"templateID": "base", "timeout": 300, "autoPause": true, "autoPauseMemory": false,
        "autoResume": {"enabled": true}, "secure": true, "allow_internet_access": false, "metadata": {"Network": "x"},
        "envVars": {"denyOut": "1"}, "mcp": {"server": {}}, "iam": null, "volumeMounts": [{"name": "a", "path": "/b"}],
        "network": {"allowOut": ["203.0.113.7"], "denyOut": [], "allowPublicTraffic": true, "maskRequestHost": "x",
        "httpsPorts": [443], "dnsServers": ["192.0.2.1"], "egressProxy": {"address": "a:1", "username": "u", "tls": true},
        "rules": {"a.example": [{"transform": {"headers": {"Timeout": "1"}}}]}}}"#;

    #[test]
    fn every_field_of_a_client_is_accepted() {
        assert!(parse_bounds::<NewSandbox>(CREATE.as_bytes()).is_ok());
        let network = r#"{"allowOut": [], "denyOut": ["0.0.0.0/0"], "rules": {}, "egressProxy": null, "dnsServers": [],
            "allow_internet_access": true}"#;
        assert!(parse_network(network.as_bytes()).is_ok());
        for nothing in ["", "{}", r#"{"network": null}"#] {
            assert!(parse_network(nothing.as_bytes()).is_ok(), "{nothing}");
        }
        // Of a later version.
        let later = r#"{"templateID": "base", "region": "eu", "timeoutMs": 1, "network": {"mode": "x", "ports": []}}"#;
        assert!(parse_bounds::<NewSandbox>(later.as_bytes()).is_ok());
    }

    #[test]
    fn another_spelling_of_a_bound_is_refused() {
        for (body, part) in [
            (
                r#"{"templateID": "base", "allowInternetAccess": false}"#,
                "allowInternetAccess is an unknown field",
            ),
            (r#"{"templateID": "base", "allow_internet_acess": false}"#, "'allow_internet_access'"),
            (r#"{"templateID": "base", "Network": {}}"#, "'network'"),
            (r#"{"templateID": "base", "netwrok": {}}"#, "'network'"),
            (r#"{"templateID": "base", "denyOut": ["0.0.0.0/0"]}"#, "did you mean 'network.denyOut'?"),
            (
                r#"{"templateID": "base", "network": {"deny_out": []}}"#,
                "network.deny_out is an unknown field",
            ),
            (r#"{"templateID": "base", "network": {"denyOuts": []}}"#, "'denyOut'"),
            (r#"{"templateID": "base", "network": {"network": {}}}"#, "did you mean 'network'?"),
            (r#"{"templateID": "base", "envvars": {}}"#, "'envVars'"),
            (r#"{"template_id": "base"}"#, "'templateID'"),
        ] {
            let error = parse_bounds::<NewSandbox>(body.as_bytes()).err().map(|error| error.message);
            assert!(error.as_ref().is_some_and(|message| message.contains(part)), "{body}: {error:?}");
        }
        for network in [r#"{"denyout": ["0.0.0.0/0"]}"#, r#"{"network": {"denyOut": ["0.0.0.0/0"]}}"#] {
            assert!(parse_network(network.as_bytes()).is_err(), "{network}");
        }
        assert!(parse::<Timeout>(br#"{"Timeout": 5}"#).is_ok());
    }
}
