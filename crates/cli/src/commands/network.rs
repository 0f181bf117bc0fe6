//! `sbx network`: shows and changes which connections a sandbox may open. A change reads the policy and writes it back, so it overwrites
//! one that another client makes in between.

use std::net::Ipv4Addr;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use sandboxd_client::{Client, EgressDefault, EgressPolicy, NetworkView, SandboxView};

use crate::cli::NetworkCommand;
use crate::output;
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{plain, table};

pub async fn network(client: &Client, json: bool, command: NetworkCommand) -> Result<ExitCode> {
    let view = match command {
        NetworkCommand::Show { id } => return show(client, json, &id).await,
        NetworkCommand::Allow { id, all: true, .. } => client.find(&id).await?.set_egress(open()).await?,
        NetworkCommand::Allow { id, targets, only: true, .. } => {
            client.find(&id).await?.set_egress(with_allowed(offline(), &targets)?).await?
        }
        NetworkCommand::Allow { id, targets, .. } => {
            change(client, &id, |policy| with_allowed(policy, &targets)).await?
        }
        NetworkCommand::Deny { id, targets } => {
            change(client, &id, |policy| with_denied(policy, &targets)).await?
        }
        NetworkCommand::Offline { id } => client.find(&id).await?.set_egress(offline()).await?,
    };
    if json {
        output::json(&view.network)?;
    } else {
        output::text(&format!("{}\n", view.id))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(client: &Client, json: bool, id: &str) -> Result<ExitCode> {
    let view = client.find(id).await?.network().await?;
    if json {
        output::json(&view)?;
    } else {
        output::text(&render(&view, Paint::of(&std::io::stdout())))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn change(
    client: &Client,
    id: &str,
    change: impl FnOnce(EgressPolicy) -> Result<EgressPolicy>,
) -> Result<SandboxView> {
    let sandbox = client.find(id).await?;
    let policy = change(sandbox.network().await?.egress)?;
    Ok(sandbox.set_egress(policy).await?)
}

fn open() -> EgressPolicy {
    EgressPolicy::default()
}

fn offline() -> EgressPolicy {
    EgressPolicy { default: EgressDefault::Deny, ..EgressPolicy::default() }
}

/// Whether it is an IPv4 address or network, such as `192.0.2.0/24`. The service checks the rest.
fn is_network(target: &str) -> bool {
    target.split('/').next().is_some_and(|address| address.parse::<Ipv4Addr>().is_ok())
}

/// The policy that allows these domains and networks besides those that it allows.
fn with_allowed(mut policy: EgressPolicy, targets: &[String]) -> Result<EgressPolicy> {
    for target in targets {
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

/// The policy that denies these domains and networks.
fn with_denied(mut policy: EgressPolicy, targets: &[String]) -> Result<EgressPolicy> {
    for target in targets {
        policy.allow.retain(|allowed| allowed != target);
        policy.allow_networks.retain(|allowed| allowed != target);
        if policy.default == EgressDefault::Deny {
            let wildcard = policy.allow.iter().find(|allowed| is_below(target, allowed));
            if let Some(wildcard) = wildcard {
                bail!(
                    "{target} is allowed by {wildcard}; deny {wildcard} and allow the names below it one by one"
                );
            }
        } else if !is_network(target) {
            bail!(
                "a domain can be denied only while not all public addresses are allowed; \
                 'sbx network allow --only SANDBOX DOMAIN…' allows nothing but the given domains"
            );
        } else if !policy.deny_networks.contains(target) {
            policy.deny_networks.push(target.clone());
        }
    }
    Ok(policy)
}

/// Whether a domain is matched by an entry such as `*.example.com`.
fn is_below(domain: &str, entry: &str) -> bool {
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
    table(["NETWORK", "VALUE"], &rows, paint)
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
    fn networks_are_told_from_domains() {
        assert!(["192.0.2.1", "192.0.2.0/24"].iter().all(|target| is_network(target)));
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
