//! What the operator should know at the start if several accounts share the host.

use std::sync::Arc;

use rules::QuotaTable;

/// Logs a warning if an account may take the capacity of the host from the others.
pub fn warn_without_quotas(quotas: &QuotaTable, accounts: &[Arc<str>]) {
    let unlimited = without_quotas(quotas, accounts);
    if unlimited > 0 {
        tracing::warn!(
            accounts = accounts.len(),
            unlimited,
            "an account without a quota can take the capacity of the host from the others; set quotas.sandboxes, quotas.vcpus or \
             quotas.memory_mb"
        );
    }
}

/// How many of several accounts have no quota of sandboxes, vCPUs or memory. An account that is alone needs none.
fn without_quotas(quotas: &QuotaTable, accounts: &[Arc<str>]) -> usize {
    if accounts.len() < 2 {
        return 0;
    }
    let is_unlimited = |account: &&Arc<str>| {
        let own = quotas.of(account);
        own.sandboxes.is_none() && own.vcpus.is_none() && own.memory_mb.is_none()
    };
    accounts.iter().filter(is_unlimited).count()
}

#[cfg(test)]
mod tests {
    use rules::Quotas;

    use super::*;

    #[test]
    fn accounts_without_any_of_the_quotas_are_counted_if_there_are_several() {
        let [none, some] = [Quotas::default(), Quotas { vcpus: Some(8), ..Quotas::default() }];
        let table = |default, own| QuotaTable { default, accounts: [("one".to_owned(), own)].into() };
        let accounts: Vec<Arc<str>> = vec!["one".into(), "two".into(), "three".into()];
        for (default, own, expected) in
            [(&none, &none, 3), (&none, &some, 2), (&some, &none, 1), (&some, &some, 0)]
        {
            assert_eq!(without_quotas(&table(default.clone(), own.clone()), &accounts), expected);
        }
        assert_eq!(without_quotas(&table(none.clone(), none), &accounts[..1]), 0);
    }
}
