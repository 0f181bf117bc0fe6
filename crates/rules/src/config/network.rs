//! The network policy of a new sandbox, and changes of it.

use api::{EgressDefault, EgressPolicy, IngressPolicy, NetworkPolicy};

use super::checks;
use super::{ConfigError, ConfigRules, Integer};

/// A network policy as a client sent it. `None` is an absent field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkInput {
    pub egress_allow: Option<Vec<String>>,
    pub egress_default: Option<String>,
    /// Also `None` when `ingress` is present without `allowPorts`.
    pub ingress_allow_ports: Option<Vec<Integer>>,
}

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
pub fn network_change(input: NetworkInput, rules: &ConfigRules) -> Result<NetworkChange, ConfigError> {
    change(input, rules).map_err(|error| match error.field.strip_prefix("network.") {
        Some(field) => ConfigError { field: field.to_owned(), ..error },
        None => error,
    })
}

/// The policy of a new sandbox; absent fields have their defaults.
pub(super) fn policy(input: NetworkInput, rules: &ConfigRules) -> Result<NetworkPolicy, ConfigError> {
    Ok(change(input, rules)?.of(&NetworkPolicy::default()))
}

fn change(input: NetworkInput, rules: &ConfigRules) -> Result<NetworkChange, ConfigError> {
    let egress_default = input.egress_default.map(|text| default(&text)).transpose()?;
    let domains = |given| checks::domains(given, rules.egress_entries_max);
    let ports = |given| checks::ports(given, rules.ingress_ports_max);
    Ok(NetworkChange {
        egress_allow: input.egress_allow.map(domains).transpose()?,
        egress_default,
        ingress: input
            .ingress_allow_ports
            .map(|given| ports(given).map(|allow_ports| IngressPolicy { allow_ports }))
            .transpose()?,
    })
}

fn default(text: &str) -> Result<EgressDefault, ConfigError> {
    match text {
        "allow" => Ok(EgressDefault::Allow),
        "deny" => Ok(EgressDefault::Deny),
        other => Err(ConfigError::text("network.egress.default", other, "'allow' or 'deny'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(input: NetworkInput) -> Result<NetworkPolicy, ConfigError> {
        let before = NetworkPolicy {
            egress: EgressPolicy { allow: vec!["a.example".to_owned()], default: EgressDefault::Deny },
            ingress: Some(IngressPolicy { allow_ports: vec![80] }),
        };
        network_change(input, &ConfigRules::default()).map(|change| change.of(&before))
    }

    #[test]
    fn what_is_given_replaces_and_the_rest_stays() {
        let untouched = changed(NetworkInput::default()).unwrap();
        assert_eq!((untouched.egress.allow.len(), untouched.egress.default), (1, EgressDefault::Deny));
        assert_eq!(untouched.ingress.as_ref().unwrap().allow_ports, [80]);
        let emptied =
            changed(NetworkInput { egress_allow: Some(Vec::new()), ..NetworkInput::default() }).unwrap();
        assert_eq!((emptied.egress.allow.len(), emptied.egress.default), (0, EgressDefault::Deny));
        let opened =
            changed(NetworkInput { egress_default: Some("allow".to_owned()), ..NetworkInput::default() })
                .unwrap();
        assert_eq!(
            (opened.egress.allow, opened.egress.default),
            (untouched.egress.allow, EgressDefault::Allow)
        );
        let ports = NetworkInput { ingress_allow_ports: Some(vec![8080]), ..NetworkInput::default() };
        assert_eq!(changed(ports).unwrap().ingress.unwrap().allow_ports, [8080]);
    }

    #[test]
    fn a_refusal_names_the_field_as_this_body_has_it() {
        let wrong =
            NetworkInput { egress_allow: Some(vec!["http://x".to_owned()]), ..NetworkInput::default() };
        assert_eq!(changed(wrong).unwrap_err().field, "egress.allow[0]");
        let wrong = NetworkInput { egress_default: Some("ask".to_owned()), ..NetworkInput::default() };
        assert_eq!(
            changed(wrong).unwrap_err().to_string(),
            "egress.default is 'ask'; allowed is 'allow' or 'deny'"
        );
        let wrong = NetworkInput { ingress_allow_ports: Some(vec![0]), ..NetworkInput::default() };
        assert_eq!(changed(wrong).unwrap_err().field, "ingress.allowPorts[0]");
    }
}
