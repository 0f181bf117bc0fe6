//! What the operator should know at the start if several accounts share the host.

use std::sync::Arc;

use rules::QuotaTable;

/// The warning names this many accounts.
const NAMED_MAX: usize = 5;

/// Logs a warning if an account may take the capacity of the host from the others.
pub fn warn_without_quotas(quotas: &QuotaTable, accounts: &[Arc<str>]) {
    let unlimited = without_quotas(quotas, accounts);
    if !unlimited.is_empty() {
        tracing::warn!(
            accounts = accounts.len(),
            unlimited = names(&unlimited),
            "an account without a quota can take the capacity of the host from the others; set quotas.sandboxes, quotas.vcpus or \
             quotas.memory_mb"
        );
    }
}

/// Those of several accounts that have no quota of sandboxes, vCPUs or memory, by name. An account that is alone needs none.
fn without_quotas<'a>(quotas: &QuotaTable, accounts: &'a [Arc<str>]) -> Vec<&'a str> {
    if accounts.len() < 2 {
        return Vec::new();
    }
    let is_unlimited = |account: &&str| {
        let own = quotas.of(account);
        own.sandboxes.is_none() && own.vcpus.is_none() && own.memory_mb.is_none()
    };
    let mut unlimited: Vec<&str> = accounts.iter().map(|account| &**account).filter(is_unlimited).collect();
    unlimited.sort_unstable();
    unlimited
}

/// The first names, and how many there are besides.
fn names(accounts: &[&str]) -> String {
    let named = accounts.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    match accounts.len().saturating_sub(NAMED_MAX) {
        0 => named,
        others => format!("{named} and {others} more"),
    }
}

#[cfg(test)]
mod tests {
    use rules::Quotas;

    use super::*;

    #[test]
    fn accounts_without_any_of_the_quotas_are_found_if_there_are_several() {
        let [none, some] = [Quotas::default(), Quotas { vcpus: Some(8), ..Quotas::default() }];
        let table = |default, own| QuotaTable { default, accounts: [("one".to_owned(), own)].into() };
        let accounts: Vec<Arc<str>> = vec!["one".into(), "two".into(), "three".into()];
        for (default, own, expected) in [
            (&none, &none, "one three two"),
            (&none, &some, "three two"),
            (&some, &none, "one"),
            (&some, &some, ""),
        ] {
            let found = without_quotas(&table(default.clone(), own.clone()), &accounts);
            assert_eq!(found.join(" "), expected);
        }
        assert!(without_quotas(&table(none.clone(), none), &accounts[..1]).is_empty());
    }

    #[test]
    fn the_first_accounts_are_named() {
        assert_eq!(names(&["a", "b"]), "a, b");
        assert_eq!(names(&["a", "b", "c", "d", "e"]), "a, b, c, d, e");
        assert_eq!(names(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
