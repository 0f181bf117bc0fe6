//! The network policy of a new sandbox, and changes of it.

use api::{CreateNetwork, EgressDefault, EgressPolicy, IngressPolicy, NetworkPolicy};

use super::checks;
use super::{ConfigError, ConfigRules};

/// A checked change of a policy. Given fields replace the current ones; the others stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkChange {
    egress_allow: Option<Vec<String>>,
    egress_default: Option<EgressDefault>,
    ingress: Option<IngressPolicy>,
}

impl NetworkChange {
    pub fn of(self, policy: &NetworkPolicy) -> NetworkPolicy {
        NetworkPolicy {
            egress: EgressPolicy {
                allow: self.egress_allow.unwrap_or_else(|| policy.egress.allow.clone()),
                default: self.egress_default.unwrap_or(policy.egress.default),
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
    let ports = |given| checks::ports(given, rules.ingress_ports_max);
    Ok(NetworkChange {
        egress_allow: egress.allow.map(domains).transpose()?,
        egress_default: egress.default,
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
            egress: EgressPolicy { allow: vec!["a.example".to_owned()], default: EgressDefault::Deny },
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
        assert_eq!(changed(ports(Some(vec![8080]))).unwrap().ingress.unwrap().allow_ports, [8080]);
        assert_eq!(changed(ports(None)).unwrap().ingress.unwrap().allow_ports, [80]);
    }

    #[test]
    fn a_refusal_names_the_field_of_its_body() {
        assert_eq!(changed(allow(&["http://x"])).unwrap_err().field, "egress.allow[0]");
        assert_eq!(changed(ports(Some(vec![0]))).unwrap_err().field, "ingress.allowPorts[0]");
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
