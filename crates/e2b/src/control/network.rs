//! Network policies: their lists of addresses and names as a policy of this service.

use std::net::Ipv6Addr;

use api::bounds::EGRESS_NETWORKS;
use api::{CreateEgress, CreateNetwork, EgressDefault};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use ipnet::Ipv4Net;
use rules::{ConfigRules, network_change, network_text, parse_network};

use super::body::{self, Network};
use super::{Call, view};
use crate::error::E2bError;

const EVERYTHING: &str = "0.0.0.0/0";
const MASK_BYTES: usize = 255;

/// Replaces the policy of a sandbox.
pub async fn replace(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let id = &call.sandbox_id()?;
    call.find(id)?;
    let body = body::parse_network(&call.collect(body).await?)?;
    let change = network_change(policy(&body, body.allow_internet_access)?, &ConfigRules::default());
    let change = change.map_err(|error| E2bError::invalid(error.to_string()))?;
    call.sandbox(id).change_network(change).await.map_err(|error| call.failed(id, error))?;
    Ok(view::empty(StatusCode::NO_CONTENT))
}

/// The policy for outgoing connections. Without rules, all public addresses are allowed; an allowed destination takes precedence over a
/// denied one.
pub fn policy(network: &Network, internet: Option<bool>) -> Result<CreateNetwork, E2bError> {
    let unsupported = [
        ("egressProxy", network.egress_proxy.is_some()),
        ("rules", network.rules.as_ref().is_some_and(|rules| !rules.is_empty())),
        ("dnsServers", network.dns_servers.as_ref().is_some_and(|servers| !servers.is_empty())),
        ("httpsPorts", network.https_ports.as_ref().is_some_and(|ports| !ports.is_empty())),
    ];
    if let Some((name, _)) = unsupported.iter().find(|(_, given)| *given) {
        return Err(E2bError::invalid(format!("network.{name} is not supported by this service")));
    }
    let denied = networks("denyOut", network.deny_out.as_deref().unwrap_or_default())?;
    let denies_all = denied.iter().any(|network| network.prefix_len() == 0);
    let allowed = network.allow_out.as_deref().unwrap_or_default();
    let (names, allowed): (Vec<&String>, Vec<&String>) = allowed.iter().partition(|entry| is_name(entry));
    if !names.is_empty() && !denies_all {
        let message = format!("allowOut has names, which need denyOut with '{EVERYTHING}'");
        return Err(E2bError::invalid(message));
    }
    let allowed = networks("allowOut", allowed)?;
    let is_closed = denies_all || internet == Some(false);
    let texts = |list: Vec<Ipv4Net>| Some(list.iter().map(network_text).collect());
    Ok(CreateNetwork {
        egress: Some(CreateEgress {
            allow: Some(names.into_iter().cloned().collect()),
            default: Some(if is_closed { EgressDefault::Deny } else { EgressDefault::Allow }),
            allow_networks: texts(allowed),
            // The default denies all of them.
            deny_networks: texts(if is_closed { Vec::new() } else { denied }),
        }),
        ingress: None,
    })
}

fn networks<'a>(
    field: &str,
    entries: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<Ipv4Net>, E2bError> {
    let mut networks = Vec::new();
    for entry in entries {
        let network = parse_network(entry).ok_or_else(|| {
            let address = entry.split('/').next().unwrap_or_default();
            let why = if address.parse::<Ipv6Addr>().is_ok() { "sandboxes have no IPv6; " } else { "" };
            let message =
                format!("{field} has {}; {why}allowed: IPv4 addresses and networks", rules::quoted(entry));
            E2bError::invalid(message)
        })?;
        networks.push(network);
    }
    if networks.len() > EGRESS_NETWORKS {
        let message =
            format!("{field} has {} addresses and networks; at most {EGRESS_NETWORKS}", networks.len());
        return Err(E2bError::invalid(message));
    }
    Ok(networks)
}

/// Whether an entry is meant as a name. Whether it is a valid one is checked with the policy.
fn is_name(entry: &str) -> bool {
    let looks_numeric = entry.bytes().all(|byte| byte.is_ascii_digit() || b"./".contains(&byte));
    !looks_numeric && !entry.contains([':', '/'])
}

/// A `Host` for programs. It goes into a header, so it may have only the characters of a host.
pub fn host_mask(text: String) -> Result<String, E2bError> {
    let plain = text.replace("${PORT}", "0");
    let fits = !plain.is_empty()
        && text.len() <= MASK_BYTES
        && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    if fits {
        return Ok(text);
    }
    let message = format!(
        "network.maskRequestHost is {}; allowed: a host of at most {MASK_BYTES} bytes, with ${{PORT}} for the port",
        rules::quoted(&text)
    );
    Err(E2bError::invalid(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<CreateEgress, String> {
        let network: Network = serde_json::from_str(json).unwrap();
        let policy = policy(&network, network.allow_internet_access).map_err(|error| error.message)?;
        Ok(policy.egress.unwrap())
    }

    #[test]
    fn lists_become_a_policy() {
        let open = read("{}").unwrap();
        assert_eq!((open.default, open.allow), (Some(EgressDefault::Allow), Some(vec![])));
        assert_eq!(
            read(r#"{"egressProxy": null, "rules": {}, "dnsServers": []}"#).unwrap().default,
            open.default
        );
        let names = read(r#"{"allowOut": ["a.example"], "denyOut": ["0.0.0.0/0"]}"#).unwrap();
        assert_eq!(names.default, Some(EgressDefault::Deny));
        assert_eq!(names.allow.unwrap(), ["a.example"]);
        assert_eq!(read(r#"{"allow_internet_access": false}"#).unwrap().default, Some(EgressDefault::Deny));
    }

    #[test]
    fn addresses_become_networks() {
        use EgressDefault::{Allow, Deny};
        for (json, default, names, allowed, denied) in [
            (r#"{"denyOut": ["203.0.113.7"]}"#, Allow, &[][..], &[][..], &["203.0.113.7"][..]),
            (
                r#"{"allowOut": ["203.0.113.7"], "denyOut": ["203.0.113.9/24"]}"#,
                Allow,
                &[],
                &["203.0.113.7"],
                &["203.0.113.0/24"],
            ),
            (r#"{"allowOut": ["203.0.113.7"]}"#, Allow, &[], &["203.0.113.7"], &[]),
            (
                r#"{"allowOut": ["203.0.113.7", "*.a.example", "198.51.100.0/24"], "denyOut": ["0.0.0.0/0", "192.0.2.1"]}"#,
                Deny,
                &["*.a.example"],
                &["203.0.113.7", "198.51.100.0/24"],
                &[],
            ),
            (r#"{"denyOut": ["1.2.3.4/0"]}"#, Deny, &[], &[], &[]),
            (
                r#"{"allow_internet_access": false, "allowOut": ["203.0.113.7"]}"#,
                Deny,
                &[],
                &["203.0.113.7"],
                &[],
            ),
            // All lists are set, so that a replacement clears them.
            ("{}", Allow, &[], &[], &[]),
        ] {
            let egress = read(json).unwrap();
            assert_eq!(egress.default, Some(default), "{json}");
            assert_eq!(egress.allow.unwrap(), names, "{json}");
            assert_eq!(egress.allow_networks.unwrap(), allowed, "{json}");
            assert_eq!(egress.deny_networks.unwrap(), denied, "{json}");
        }
    }

    #[test]
    fn an_entry_that_is_no_network_is_named() {
        for (json, part) in [
            (r#"{"denyOut": ["a.example"]}"#, "denyOut has 'a.example'; allowed: IPv4"),
            (r#"{"denyOut": ["2001:db8::/32"]}"#, "denyOut has '2001:db8::/32'; sandboxes have no IPv6; "),
            (
                r#"{"allowOut": ["::1"], "denyOut": ["0.0.0.0/0"]}"#,
                "allowOut has '::1'; sandboxes have no IPv6; ",
            ),
            (r#"{"allowOut": ["203.0.113.7/33"]}"#, "allowOut has '203.0.113.7/33'; allowed: IPv4"),
            (r#"{"allowOut": ["203.0.113.256"]}"#, "allowOut has '203.0.113.256'; allowed: IPv4"),
            (r#"{"allowOut": [""]}"#, "allowOut has ''; allowed: IPv4"),
        ] {
            let message = read(json).unwrap_err();
            assert!(message.starts_with(part), "{json}: {message}");
        }
        let many = |count: usize| {
            format!(r#"{{"denyOut": ["203.0.113.7"{}]}}"#, r#", "203.0.113.7""#.repeat(count - 1))
        };
        assert!(read(&many(64)).is_ok());
        assert_eq!(read(&many(65)).unwrap_err(), "denyOut has 65 addresses and networks; at most 64");
    }

    #[test]
    fn what_cannot_be_enforced_is_refused() {
        for json in [
            r#"{"allowOut": ["a.example"]}"#,
            r#"{"denyOut": ["a.example"]}"#,
            r#"{"egressProxy": {"address": "x"}}"#,
            r#"{"rules": {"a": []}}"#,
            r#"{"dnsServers": ["1.1.1.1"]}"#,
            r#"{"httpsPorts": [443]}"#,
        ] {
            assert!(read(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_host_mask_cannot_add_headers() {
        assert_eq!(host_mask("localhost:${PORT}".to_owned()).unwrap(), "localhost:${PORT}");
        for wrong in ["", "a\r\nb: c", "a b", "a/b", "${HOST}", &"a".repeat(256)] {
            assert!(host_mask(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }
}
