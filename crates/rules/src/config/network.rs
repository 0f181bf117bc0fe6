//! The network policy of a new sandbox, and changes of it.

use api::{CreateNetwork, EgressDefault, EgressPolicy, IngressPolicy, NetworkPolicy};

use super::ConfigRules;
use super::checks;
use crate::config::error::ConfigError;

/// A checked change of a policy. Given fields replace the current ones; the others stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkChange {
    egress_allow: Option<Vec<String>>,
    egress_default: Option<EgressDefault>,
    egress_allow_networks: Option<Vec<String>>,
    egress_deny_networks: Option<Vec<String>>,
    ingress: Option<IngressPolicy>,
}

impl NetworkChange {
    /// The policy after the change.
    pub fn of(self, policy: &NetworkPolicy) -> NetworkPolicy {
        let before = &policy.egress;
        NetworkPolicy {
            egress: EgressPolicy {
                allow: self.egress_allow.unwrap_or_else(|| before.allow.clone()),
                default: self.egress_default.unwrap_or(before.default),
                allow_networks: self.egress_allow_networks.unwrap_or_else(|| before.allow_networks.clone()),
                deny_networks: self.egress_deny_networks.unwrap_or_else(|| before.deny_networks.clone()),
            },
            ingress: self.ingress.or_else(|| policy.ingress.clone()),
        }
    }
}

/// Checks a change as a create checks a policy. Errors name fields relative to `network`, which is the body itself.
pub fn network_change(body: CreateNetwork, rules: &ConfigRules) -> Result<NetworkChange, ConfigError> {
    change(body, rules).map_err(|error| match error.field.strip_prefix("network.") {
        Some(field) => ConfigError { field: field.to_owned(), ..error },
        None => error,
    })
}

/// The policy of a new sandbox; absent fields have their defaults.
pub(super) fn policy(body: CreateNetwork, rules: &ConfigRules) -> Result<NetworkPolicy, ConfigError> {
    Ok(change(body, rules)?.of(&NetworkPolicy::default()))
}

fn change(body: CreateNetwork, rules: &ConfigRules) -> Result<NetworkChange, ConfigError> {
    let egress = body.egress.unwrap_or_default();
    let domains = |given| checks::domains(given, rules.egress_entries_max);
    let networks = |field, given| checks::networks(field, given, rules.egress_networks_max);
    let ports = |given| checks::ports(given, rules.ingress_ports_max);
    Ok(NetworkChange {
        egress_allow: egress.allow.map(domains).transpose()?,
        egress_default: egress.default,
        egress_allow_networks: egress
            .allow_networks
            .map(|given| networks("network.egress.allowNetworks", given))
            .transpose()?,
        egress_deny_networks: egress
            .deny_networks
            .map(|given| networks("network.egress.denyNetworks", given))
            .transpose()?,
        // Without `allowPorts` an `ingress` says nothing.
        ingress: body
            .ingress
            .and_then(|ingress| ingress.allow_ports)
            .map(|given| ports(given).map(|allow_ports| IngressPolicy { allow_ports }))
            .transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use api::{CreateEgress, CreateIngress, Integer};

    use super::*;

    fn changed(body: CreateNetwork) -> Result<NetworkPolicy, ConfigError> {
        let before = NetworkPolicy {
            egress: EgressPolicy {
                allow: vec!["a.example".to_owned()],
                default: EgressDefault::Deny,
                allow_networks: vec!["203.0.113.7".to_owned()],
                deny_networks: vec!["198.51.100.0/24".to_owned()],
            },
            ingress: Some(IngressPolicy { allow_ports: vec![80] }),
        };
        network_change(body, &ConfigRules::default()).map(|change| change.of(&before))
    }

    #[test]
    fn a_change_replaces_only_given_fields() {
        let untouched = changed(CreateNetwork::default()).unwrap();
        assert_eq!((untouched.egress.allow.len(), untouched.egress.default), (1, EgressDefault::Deny));
        assert_eq!(untouched.ingress.as_ref().unwrap().allow_ports, [80]);
        let emptied = changed(allow(&[])).unwrap();
        assert_eq!((emptied.egress.allow.len(), emptied.egress.default), (0, EgressDefault::Deny));
        let egress = CreateEgress { default: Some(EgressDefault::Allow), ..CreateEgress::default() };
        let opened = changed(CreateNetwork { egress: Some(egress), ingress: None }).unwrap();
        assert_eq!(
            (opened.egress.allow, opened.egress.default),
            (untouched.egress.allow, EgressDefault::Allow)
        );
        assert_eq!(opened.egress.allow_networks, ["203.0.113.7"]);
        assert_eq!(opened.egress.deny_networks, ["198.51.100.0/24"]);
        let denied = changed(networks(None, Some(&[]))).unwrap().egress;
        assert_eq!((denied.allow_networks.len(), denied.deny_networks.len()), (1, 0));
        let allowed = changed(networks(Some(&["192.0.2.9/24", "192.0.2.9/32"]), None)).unwrap().egress;
        assert_eq!(allowed.allow_networks, ["192.0.2.0/24", "192.0.2.9"]);
        assert_eq!(allowed.deny_networks, ["198.51.100.0/24"]);
        assert_eq!(changed(ports(Some(vec![8080]))).unwrap().ingress.unwrap().allow_ports, [8080]);
        assert_eq!(changed(ports(None)).unwrap().ingress.unwrap().allow_ports, [80]);
    }

    #[test]
    fn a_refusal_names_the_field_of_its_body() {
        assert_eq!(changed(allow(&["http://x"])).unwrap_err().field, "egress.allow[0]");
        for (body, field) in [
            (networks(Some(&["192.0.2.9", "a.example"]), None), "egress.allowNetworks[1]"),
            (networks(None, Some(&["2001:db8::/32"])), "egress.denyNetworks[0]"),
            (networks(None, Some(&["192.0.2.9"; 65])), "egress.denyNetworks"),
        ] {
            assert_eq!(changed(body).unwrap_err().field, field);
        }
        assert!(changed(networks(Some(&["192.0.2.9"; 64]), Some(&["192.0.2.9"; 64]))).is_ok());
        assert_eq!(changed(ports(Some(vec![0]))).unwrap_err().field, "ingress.allowPorts[0]");
    }

    fn networks(allowed: Option<&[&str]>, denied: Option<&[&str]>) -> CreateNetwork {
        let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect();
        let egress = CreateEgress {
            allow_networks: allowed.map(list),
            deny_networks: denied.map(list),
            ..CreateEgress::default()
        };
        CreateNetwork { egress: Some(egress), ingress: None }
    }

    fn allow(names: &[&str]) -> CreateNetwork {
        let allow = names.iter().map(|name| (*name).to_owned()).collect();
        let egress = CreateEgress { allow: Some(allow), ..CreateEgress::default() };
        CreateNetwork { egress: Some(egress), ingress: None }
    }

    fn ports(allow_ports: Option<Vec<Integer>>) -> CreateNetwork {
        CreateNetwork { egress: None, ingress: Some(CreateIngress { allow_ports }) }
    }
}
