//! `sbx network`: shows and changes which connections a sandbox may open. A change reads the policy and writes it back, so it overwrites
//! one that another client makes in between.

use std::fmt;
use std::net::Ipv4Addr;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use sandboxd_client::{Client, EgressDefault, EgressPolicy, NetworkView, SandboxView};

use super::named_sandbox::find_sandbox;
use crate::cli::NetworkCommand;
use crate::output::OutputFormat;
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{plain, table};

/// Shows the policy, or changes it and prints the id of the sandbox.
pub async fn network(client: &Client, format: OutputFormat, command: NetworkCommand) -> Result<ExitCode> {
    let view = match command {
        NetworkCommand::Show { id } => return show(client, format, &id).await,
        NetworkCommand::Allow { id, all: true, .. } => {
            find_sandbox(client, &id).await?.set_egress(open()).await?
        }
        NetworkCommand::Allow { id, targets, only: true, .. } => {
            find_sandbox(client, &id).await?.set_egress(with_allowed(offline(), &targets)?).await?
        }
        NetworkCommand::Allow { id, targets, .. } => {
            change(client, &id, |policy| with_allowed(policy, &targets)).await?
        }
        NetworkCommand::Deny { id, targets } => {
            change(client, &id, |policy| with_denied(policy, &targets)).await?
        }
        NetworkCommand::Offline { id } => find_sandbox(client, &id).await?.set_egress(offline()).await?,
    };
    format.print_id(&view.network, &view.id)
}

async fn show(client: &Client, format: OutputFormat, id: &str) -> Result<ExitCode> {
    let view = find_sandbox(client, id).await?.network().await?;
    format.print(&view, |paint| render(&view, paint))
}

async fn change(
    client: &Client,
    id: &str,
    change: impl FnOnce(EgressPolicy) -> Result<EgressPolicy>,
) -> Result<SandboxView> {
    let sandbox = find_sandbox(client, id).await?;
    let policy = change(sandbox.network().await?.egress)?;
    Ok(sandbox.set_egress(policy).await?)
}

fn open() -> EgressPolicy {
    EgressPolicy::default()
}

fn offline() -> EgressPolicy {
    EgressPolicy { default: EgressDefault::Deny, ..EgressPolicy::default() }
}

/// An IPv4 network. An address is one with a prefix of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ipv4Network {
    bits: u32,
    prefix: u32,
}

impl Ipv4Network {
    /// `None` for a domain. What is neither is refused by the service.
    fn parse(target: &str) -> Option<Self> {
        let (address, prefix) = target.split_once('/').unwrap_or((target, "32"));
        let prefix = prefix.parse::<u32>().ok().filter(|prefix| *prefix <= 32)?;
        let bits = u32::from(address.parse::<Ipv4Addr>().ok()?) & mask(prefix);
        Some(Self { bits, prefix })
    }

    fn contains(self, other: Self) -> bool {
        other.prefix >= self.prefix && other.bits & mask(self.prefix) == self.bits
    }
}

/// As in the policies of the service: without host bits, and an address without a prefix.
impl fmt::Display for Ipv4Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (Ipv4Addr::from(self.bits), self.prefix) {
            (address, 32) => write!(f, "{address}"),
            (address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

fn mask(prefix: u32) -> u32 {
    u32::MAX.checked_shl(32 - prefix).unwrap_or(0)
}

/// Whether it is an IPv4 address or network, such as `192.0.2.0/24`.
fn is_network(target: &str) -> bool {
    Ipv4Network::parse(target).is_some()
}

/// A target in the form in which the service returns it.
fn canonical(target: &str) -> String {
    Ipv4Network::parse(target).map_or_else(|| target.to_owned(), |network| network.to_string())
}

/// Whether a connection that a target means is one that an entry of a policy means: it is the same, below a wildcard, or in a network.
fn covers(entry: &str, target: &str) -> bool {
    match (Ipv4Network::parse(entry), Ipv4Network::parse(target)) {
        (Some(entry), Some(target)) => entry.contains(target),
        (None, None) => entry.eq_ignore_ascii_case(target) || is_below(target, entry),
        _ => false,
    }
}

/// The policy that allows these domains and networks besides those that it allows.
fn with_allowed(mut policy: EgressPolicy, targets: &[String]) -> Result<EgressPolicy> {
    for target in targets {
        let target = &canonical(target);
        let is_network = is_network(target);
        ensure!(
            is_network || policy.default == EgressDefault::Deny,
            "the sandbox may connect to all public addresses, so there is nothing to allow; \
             'sbx network allow --only SANDBOX {target}' allows nothing else"
        );
        policy.deny_networks.retain(|denied| denied != target);
        let list = if is_network { &mut policy.allow_networks } else { &mut policy.allow };
        if !list.contains(target) {
            list.push(target.clone());
        }
    }
    Ok(policy)
}

/// The policy that denies these domains and networks. An entry that allows more than the target is an error: the service lets it prevail,
/// so the target would stay allowed.
fn with_denied(mut policy: EgressPolicy, targets: &[String]) -> Result<EgressPolicy> {
    for target in targets {
        let target = canonical(target);
        ensure!(
            policy.default == EgressDefault::Deny || is_network(&target),
            "a domain can be denied only while not all public addresses are allowed; \
             'sbx network allow --only SANDBOX DOMAIN…' allows nothing but the given domains"
        );
        policy.allow.retain(|allowed| !covers(&target, allowed));
        policy.allow_networks.retain(|allowed| !covers(&target, allowed));
        let wider =
            policy.allow.iter().chain(&policy.allow_networks).find(|allowed| covers(allowed, &target));
        if let Some(wider) = wider {
            bail!(
                "{target} is allowed by {wider}; deny {wider} and allow the others that it covers one by one"
            );
        }
        if policy.default == EgressDefault::Allow && !policy.deny_networks.contains(&target) {
            policy.deny_networks.push(target);
        }
    }
    Ok(policy)
}

/// Whether a domain is matched by an entry such as `*.example.com`.
fn is_below(domain: &str, entry: &str) -> bool {
    let (domain, entry) = (domain.to_ascii_lowercase(), entry.to_ascii_lowercase());
    entry.strip_prefix('*').is_some_and(|suffix| domain.len() > suffix.len() && domain.ends_with(suffix))
}

fn render(view: &NetworkView, paint: Paint) -> String {
    let NetworkView { egress, ingress, usage } = view;
    let list = |items: &[String]| if items.is_empty() { "-".to_owned() } else { items.join(", ") };
    let others = match egress.default {
        EgressDefault::Allow => ("allowed".to_owned(), Tone::Good),
        EgressDefault::Deny => ("denied".to_owned(), Tone::Waiting),
    };
    let ports = match ingress {
        None => "all".to_owned(),
        Some(ingress) => list(&ingress.allow_ports.iter().map(u16::to_string).collect::<Vec<_>>()),
    };
    let name = |name: &str| (name.to_owned(), Tone::Bold);
    let rows = [
        [name("allowed domains"), plain(list(&egress.allow))],
        [name("allowed networks"), plain(list(&egress.allow_networks))],
        [name("denied networks"), plain(list(&egress.deny_networks))],
        [name("all other public addresses"), others],
        [name("ports that may be exposed"), plain(ports)],
        [name("sent"), plain(size(usage.bytes_out))],
        [name("received"), plain(size(usage.bytes_in))],
    ];
    table(["NETWORK", "VALUE"], rows, paint)
}

#[cfg(test)]
mod tests {
    use sandboxd_client::EgressDefault::{Allow, Deny};

    use super::*;

    fn words(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn policy(
        default: EgressDefault,
        allow: &str,
        allow_networks: &str,
        deny_networks: &str,
    ) -> EgressPolicy {
        let (allow_networks, deny_networks) = (words(allow_networks), words(deny_networks));
        EgressPolicy { allow: words(allow), default, allow_networks, deny_networks }
    }

    #[test]
    fn targets_are_added_once() {
        let allowed = |before, targets: &str| with_allowed(before, &words(targets));
        assert_eq!(
            allowed(policy(Deny, "a.example", "", "192.0.2.1"), "a.example *.b.example 192.0.2.1").unwrap(),
            policy(Deny, "a.example *.b.example", "192.0.2.1", "")
        );
        assert_eq!(
            allowed(policy(Allow, "", "", "192.0.2.0/24"), "192.0.2.7").unwrap(),
            policy(Allow, "", "192.0.2.7", "192.0.2.0/24")
        );
        let error = allowed(open(), "a.example").unwrap_err().to_string();
        assert!(error.contains("--only SANDBOX a.example"), "{error}");
    }

    #[test]
    fn targets_are_denied_where_that_has_an_effect() {
        let denied = |before, targets: &str| with_denied(before, &words(targets));
        assert_eq!(
            denied(
                policy(Deny, "a.example b.example", "192.0.2.0/24", ""),
                "a.example 192.0.2.0/24 c.example"
            )
            .unwrap(),
            policy(Deny, "b.example", "", "")
        );
        assert_eq!(
            denied(policy(Allow, "", "192.0.2.7", ""), "192.0.2.7 192.0.2.7").unwrap(),
            policy(Allow, "", "", "192.0.2.7")
        );
        let error = denied(policy(Deny, "*.a.example", "", ""), "x.a.example").unwrap_err().to_string();
        assert!(error.contains("allowed by *.a.example"), "{error}");
        assert!(denied(policy(Deny, "*.a.example", "", ""), "a.example").is_ok());
        assert!(denied(open(), "a.example").unwrap_err().to_string().contains("--only"));
    }

    #[test]
    fn a_denied_target_does_not_stay_allowed_in_another_form() {
        let denied = |before, targets: &str| with_denied(before, &words(targets));
        // Names have no case, and networks no host bits.
        assert_eq!(
            denied(policy(Deny, "A.example b.example", "192.0.2.0/24", ""), "a.EXAMPLE 192.0.2.9/24")
                .unwrap(),
            policy(Deny, "b.example", "", "")
        );
        // What a target covers is denied with it.
        assert_eq!(
            denied(policy(Deny, "x.A.example", "192.0.2.7 203.0.113.1", ""), "*.a.example 192.0.2.0/24")
                .unwrap(),
            policy(Deny, "", "203.0.113.1", "")
        );
        // An allowed network prevails over a denied one.
        for default in [Deny, Allow] {
            let error = denied(policy(default, "", "192.0.2.0/24", ""), "192.0.2.7").unwrap_err().to_string();
            assert!(error.contains("192.0.2.7 is allowed by 192.0.2.0/24"), "{error}");
        }
        assert!(denied(policy(Deny, "*.A.example", "", ""), "x.a.example").is_err());
        assert!(denied(policy(Deny, "*.a.example", "0.0.0.0/1", ""), "b.example 203.0.113.1").is_ok());
    }

    #[test]
    fn networks_are_told_from_domains() {
        assert!(["192.0.2.1", "192.0.2.0/24", "0.0.0.0/0"].iter().all(|target| is_network(target)));
        assert_eq!(
            ["192.0.2.9/24", "192.0.2.1/32", "9.9.9.9/0"].map(canonical),
            ["192.0.2.0/24", "192.0.2.1", "0.0.0.0/0"]
        );
        assert!(
            !["example.com", "*.example.com", "1.example", "192.0.2"].iter().any(|target| is_network(target))
        );
    }

    #[test]
    fn the_policy_and_the_traffic_are_shown() {
        let json = r#"{"egress":{"allow":["a.example","b.example"],"default":"deny"},"ingress":{"allowPorts":[80]},
            "usage":{"bytesOut":1200000,"bytesIn":5,"connections":1}}"#;
        let text = render(&serde_json::from_str(json).unwrap(), Paint::None);
        for line in [
            "allowed domains             a.example, b.example",
            "denied networks             -",
            "all other public addresses  denied",
            "ports that may be exposed   80",
            "sent                        1.2 MB",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
