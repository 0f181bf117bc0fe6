//! Exposed ports: what may be exposed, their host names, and the text of tokens.
//!
//! A port's host is `PORT-NAME.DOMAIN`, where NAME is the host name inside the sandbox. The host decides whether a request is for a
//! port ([`HostOf::read`]) before anything else of it is read.

use api::bounds::{PORT, TOKEN_LIFETIME_MS};
use api::{ExposeBody, NetworkPolicy, PortVisibility, SandboxId, TokenBody};

use crate::config::error::ConfigError;
use crate::config::integer;
use crate::text::base32;

/// The most exposed ports of one sandbox.
pub const MAX_PORTS: usize = 64;

const TOKEN_PREFIX: &str = "spt_";
const MAC_BYTES: usize = 32;
const TOKEN_BYTES: usize = 8 + MAC_BYTES;

/// A checked request to expose a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExposeRequest {
    pub port: u16,
    pub visibility: PortVisibility,
    pub auto_resume: bool,
}

/// Checks a request to expose a port.
pub fn expose_request(body: &ExposeBody) -> Result<ExposeRequest, ConfigError> {
    let port = integer("port", Some(body.port), PORT)?;
    let visibility = body.visibility.unwrap_or_default();
    Ok(ExposeRequest { port, visibility, auto_resume: body.auto_resume.unwrap_or(true) })
}

/// The lifetime of a token.
pub fn token_lifetime_ms(body: &TokenBody) -> Result<u64, ConfigError> {
    integer("expiresInMs", body.expires_in_ms, TOKEN_LIFETIME_MS)
}

/// Why a port is not exposed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortRefusal {
    #[error(
        "port {port} may not be exposed: network.ingress.allowPorts {}; to allow it, PATCH the sandbox's network",
        named(allowed)
    )]
    NotAllowed { port: u16, allowed: Vec<u16> },
    #[error("the sandbox has {most} exposed ports, the maximum; close one first")]
    TooMany { most: usize },
    #[error("port {port} is not exposed")]
    NotExposed { port: u16 },
}

fn named(allowed: &[u16]) -> String {
    if allowed.is_empty() {
        return "allows none".to_owned();
    }
    let names: Vec<String> = allowed.iter().map(u16::to_string).collect();
    format!("allows {}", names.join(", "))
}

/// Whether a policy allows a port to be exposed. A policy without `allowPorts` allows all.
pub fn may_expose(policy: &NetworkPolicy, port: u16) -> Result<(), PortRefusal> {
    match &policy.ingress {
        Some(ingress) if !ingress.allow_ports.contains(&port) => {
            Err(PortRefusal::NotAllowed { port, allowed: ingress.allow_ports.clone() })
        }
        _ => Ok(()),
    }
}

/// The first label of a port's host.
pub fn port_label(id: &SandboxId, port: u16) -> String {
    format!("{port}-{}", id.host_name())
}

/// What the host of a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostOf {
    /// Not a name below the ports' domain: the service itself.
    Service,
    Port(SandboxId, u16),
    /// The label `api` or `sandbox`, which only the E2B-compatible API uses.
    Reserved(ReservedName),
    /// A name below the ports' domain that belongs to no port.
    UnknownName,
}

/// A label below the ports' domain that no port can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservedName {
    /// `api`
    Api,
    /// `sandbox`: headers of the request name the sandbox and the port.
    Sandbox,
}

impl HostOf {
    /// `host` as the request has it, without its port. `domain` is lower case.
    pub fn read(host: &str, domain: &str) -> Self {
        let host = host.strip_suffix('.').unwrap_or(host);
        let below = host.len().checked_sub(domain.len()).and_then(|at| {
            let (label, end) = (host.get(..at)?, host.get(at..)?);
            end.eq_ignore_ascii_case(domain).then_some(label)
        });
        match below.and_then(|label| label.strip_suffix('.')) {
            Some(label) if label.eq_ignore_ascii_case("api") => Self::Reserved(ReservedName::Api),
            Some(label) if label.eq_ignore_ascii_case("sandbox") => Self::Reserved(ReservedName::Sandbox),
            Some(label) => port_of(label).map_or(Self::UnknownName, |(id, port)| Self::Port(id, port)),
            None => Self::Service,
        }
    }
}

fn port_of(label: &str) -> Option<(SandboxId, u16)> {
    let label = label.to_ascii_lowercase();
    let (number, name) = label.split_once('-')?;
    // One name per port: no leading zeros, no sign.
    let port: u16 = number.parse().ok().filter(|port: &u16| port.to_string() == number && *port != 0)?;
    Some((SandboxId::from_host_name(name)?, port))
}

/// A parsed token; the holder of the secret verifies its signature.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedToken {
    pub expires_at_ms: u64,
    pub mac: [u8; MAC_BYTES],
}

impl SignedToken {
    /// The token as clients send it.
    pub fn text(&self) -> String {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[..8].copy_from_slice(&self.expires_at_ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.mac);
        format!("{TOKEN_PREFIX}{}", base32::encode(&bytes))
    }

    /// `None` for what no token can be. Whether it is valid, the caller decides by its code and its time.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = base32::decode::<TOKEN_BYTES>(text.strip_prefix(TOKEN_PREFIX)?)?;
        let (expiry, mac) = bytes.split_first_chunk::<8>()?;
        Some(Self { expires_at_ms: u64::from_be_bytes(*expiry), mac: mac.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use api::{IngressPolicy, Integer};

    use super::*;

    const DOMAIN: &str = "sandboxes.localhost";

    fn id() -> SandboxId {
        "sb_abcdefgh23".parse().unwrap()
    }

    #[test]
    fn an_exposed_port_is_private_and_resumes_by_default() {
        let body = ExposeBody { port: 8080, visibility: None, auto_resume: None };
        let request = expose_request(&body).unwrap();
        assert_eq!(
            request,
            ExposeRequest { port: 8080, visibility: PortVisibility::Private, auto_resume: true }
        );
        let all = ExposeBody { visibility: Some(PortVisibility::Public), auto_resume: Some(false), ..body };
        let request = expose_request(&all).unwrap();
        assert_eq!((request.visibility, request.auto_resume), (PortVisibility::Public, false));
        for port in [0, -1, 65_536] {
            let message = expose_request(&ExposeBody { port, ..body.clone() }).unwrap_err().to_string();
            assert_eq!(message, format!("port is {port}; allowed: 1 to 65535"));
        }
    }

    #[test]
    fn tokens_live_an_hour_and_a_week_at_most() {
        let lifetime = |expires_in_ms| token_lifetime_ms(&TokenBody { expires_in_ms });
        assert_eq!(lifetime(None), Ok(3_600_000));
        assert_eq!(lifetime(Some(604_800_000)), Ok(604_800_000));
        for wrong in [0, -1, 999, 604_800_001, Integer::MAX] {
            assert!(lifetime(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_policy_that_names_ports_allows_those() {
        let mut policy = NetworkPolicy::default();
        assert_eq!(may_expose(&policy, 22), Ok(()));
        policy.ingress = Some(IngressPolicy { allow_ports: vec![80, 8080] });
        assert_eq!(may_expose(&policy, 8080), Ok(()));
        let refusal = may_expose(&policy, 22).unwrap_err().to_string();
        assert!(refusal.contains("port 22") && refusal.contains("allows 80, 8080;"), "{refusal}");
        policy.ingress = Some(IngressPolicy { allow_ports: Vec::new() });
        assert!(may_expose(&policy, 80).unwrap_err().to_string().contains("allows none;"));
    }

    #[test]
    fn port_host_names_are_parsed_and_others_are_rejected() {
        let label = port_label(&id(), 8080);
        assert_eq!(label, "8080-sb-abcdefgh23");
        for (name, reserved) in [("api", ReservedName::Api), ("Sandbox", ReservedName::Sandbox)] {
            assert_eq!(HostOf::read(&format!("{name}.{DOMAIN}"), DOMAIN), HostOf::Reserved(reserved));
        }
        for host in [
            "8080-sb-abcdefgh23.sandboxes.localhost",
            "8080-SB-ABCDEFGH23.Sandboxes.LocalHost.",
            "8080-sbabcdefgh23.sandboxes.localhost",
        ] {
            assert_eq!(HostOf::read(host, DOMAIN), HostOf::Port(id(), 8080), "{host}");
        }
        for host in
            ["localhost", "sandboxes.localhost", "sandboxes.localhost.", "xsandboxes.localhost", "", "é"]
        {
            assert_eq!(HostOf::read(host, DOMAIN), HostOf::Service, "{host}");
        }
        for label in [
            "",
            "8080",
            "sb-abcdefgh23",
            "0-sb-abcdefgh23",
            "08080-sb-abcdefgh23",
            "+80-sb-abcdefgh23",
            "65536-sb-abcdefgh23",
            "80-sb-abc",
            "80-sb_abcdefgh23",
            "80-sb-abcdefgh23.x",
            "x.80-sb-abcdefgh23",
            "80-sb-abcdefgh23-",
            "80--sb-abcdefgh23",
            "é",
        ] {
            assert_eq!(HostOf::read(&format!("{label}.{DOMAIN}"), DOMAIN), HostOf::UnknownName, "{label}");
        }
    }

    #[test]
    fn the_longest_label_is_valid_in_dns() {
        let longest: SandboxId = format!("sb_{}", "z".repeat(40)).parse().unwrap();
        assert!(port_label(&longest, u16::MAX).len() <= 63);
    }

    #[test]
    fn tokens_come_back_as_they_were() {
        let token = SignedToken { expires_at_ms: u64::MAX - 5, mac: [0xa5; MAC_BYTES] };
        let text = token.text();
        assert_eq!(text.len(), 4 + 64);
        assert!(SignedToken::parse(&text) == Some(token));
        for wrong in ["", "spt_", &text[..67], &text.to_uppercase(), &text.replace("spt_", "sbk_")] {
            assert!(SignedToken::parse(wrong).is_none(), "{wrong}");
        }
    }
}
