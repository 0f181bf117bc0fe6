//! What clients will not like of the operator's own certificate.

use admission::wall_clock::now;
use rules::TimeMs;

use crate::config::{Config, Ports, Tls};

const DAY_S: i64 = 24 * 3600;
/// Time to renew it by hand.
const WARNED_DAYS: i64 = 14;

/// Warnings of a certificate that has expired or is about to, or that is not for the names of ports. An unreadable one is an error that a
/// start reports.
pub fn warnings(config: &Config) -> Vec<String> {
    let http = &config.http;
    if http.tls != Tls::Files {
        return Vec::new();
    }
    let Ok(certificate) = listen::Certificate::read(&http.tls_cert) else { return Vec::new() };
    let file = http.tls_cert.display();
    let expiry = expiry(certificate.not_after.unix_timestamp(), now())
        .map(|expiry| format!("http.tls_cert is '{file}', a certificate that {expiry}"));
    let domain = &config.ports.domain;
    let names = format!("*.{domain}");
    let misses_ports = *domain != Ports::default().domain && !certificate.is_for(&names);
    let ports = misses_ports.then(|| {
        format!(
            "http.tls_cert is '{file}', a certificate that is not for {names}: clients refuse the URLs of ports, because ports.domain is \
             '{domain}'"
        )
    });
    expiry.into_iter().chain(ports).collect()
}

/// What is wrong with the end of a certificate.
fn expiry(not_after_s: i64, now: TimeMs) -> Option<String> {
    let left_s = not_after_s - i64::try_from(now.0 / 1000).unwrap_or(i64::MAX);
    let end = api::Timestamp(u64::try_from(not_after_s).unwrap_or(0).saturating_mul(1000));
    if left_s <= 0 {
        return Some(format!("has expired at {end}: clients refuse it"));
    }
    let days = left_s / DAY_S;
    (days < WARNED_DAYS).then(|| format!("expires at {end}, in less than {} days", days + 1))
}

#[cfg(test)]
mod tests {
    use listen::{SelfSigned, TlsConfig};

    use super::*;

    #[test]
    fn a_certificate_that_ends_within_two_weeks_is_reported() {
        let now = TimeMs(1_000 * DAY_S as u64 * 1000);
        let of_days = |days: i64| expiry((1_000 + days) * DAY_S, now);
        assert!(of_days(0).unwrap().starts_with("has expired at 1972-"));
        assert!(of_days(-3).unwrap().ends_with("clients refuse it"));
        assert!(of_days(13).unwrap().ends_with("in less than 14 days"));
        assert_eq!(of_days(14), None);
    }

    #[test]
    fn a_certificate_without_the_names_of_ports_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let warnings_of = |names: &[&str]| {
            let dir = dir.path().join(names.join("-"));
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let own = SelfSigned { dir: dir.clone(), names };
            listen::Tls::load(TlsConfig::SelfSigned(own)).unwrap();
            let mut config = Config::default();
            config.http.tls = Tls::Files;
            config.http.tls_cert = dir.join("tls-cert.pem");
            config.ports.domain = "ports.example.com".to_owned();
            warnings(&config)
        };
        let missing = warnings_of(&["example.com"]);
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].contains("is not for *.ports.example.com"), "{missing:?}");
        assert_eq!(warnings_of(&["example.com", "*.ports.example.com"]), Vec::<String>::new());
    }
}
