//! Single checks of the watcher, with a controlled clock.

use std::sync::atomic::{AtomicI64, Ordering};

use time::{Duration, OffsetDateTime};

use super::super::SelfSigned;
use super::*;

static DAYS: AtomicI64 = AtomicI64::new(0);

fn clock() -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::days(20_000 + DAYS.load(Ordering::SeqCst))
}

#[test]
fn a_self_signed_certificate_is_renewed_while_it_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let own = SelfSigned { dir: dir.path().to_owned(), names: vec!["localhost".into()] };
    let tls = Tls::load_at(TlsConfig::SelfSigned(own), clock).unwrap();
    let first = tls.certificate();
    assert!(check(&tls, None).is_none());
    DAYS.store(334, Ordering::SeqCst);
    assert!(check(&tls, None).is_none());
    assert_eq!(tls.certificate(), first, "not before it is due");
    DAYS.store(336, Ordering::SeqCst);
    assert!(check(&tls, None).is_none());
    assert_eq!(tls.certificate().not_after, clock() + Duration::days(365));
    let renewed = tls.certificate();
    assert!(check(&tls, None).is_none());
    assert_eq!(tls.certificate(), renewed, "once");
}

#[test]
fn an_unusable_certificate_is_logged_once() {
    let dir = tempfile::tempdir().unwrap();
    let own = SelfSigned { dir: dir.path().to_owned(), names: vec!["localhost".into()] };
    let made = Tls::load(TlsConfig::SelfSigned(own)).unwrap().certificate().file;
    let key = dir.path().join("tls-key.pem");
    let tls = Tls::load(TlsConfig::Own { certificate: made.clone(), key }).unwrap();
    let good = std::fs::read(&made).unwrap();
    std::fs::write(&made, "broken").unwrap();
    let refused = check(&tls, None);
    let first = refused.clone().unwrap();
    assert!(first.may_settle, "the next copy of a renewal may follow");
    let again = check(&tls, refused);
    assert_eq!(again.as_ref(), Some(&first), "the failure is not logged again");
    let before = |refused: &RefusedFiles, time| {
        let when = refused.when.checked_sub(time).unwrap();
        Some(RefusedFiles { when, ..refused.clone() })
    };
    let lasting = check(&tls, before(&first, SETTLE_TIME)).unwrap();
    assert!(!lasting.may_settle, "it is an error now");
    assert_eq!(check(&tls, before(&lasting, SETTLE_TIME)), before(&lasting, SETTLE_TIME));
    std::fs::write(&made, good).unwrap();
    assert!(check(&tls, Some(lasting)).is_none());
}

/// A copy of an old certificate over the new one, as a wrong restore makes it.
#[test]
fn an_expired_certificate_does_not_replace_a_valid_one() {
    fn now() -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::days(20_000)
    }
    fn two_years_earlier() -> OffsetDateTime {
        now() - Duration::days(730)
    }
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, at: fn() -> OffsetDateTime| {
        let own = SelfSigned { dir: dir.path().join(name), names: vec!["localhost".into()] };
        Tls::load_at(TlsConfig::SelfSigned(own), at).unwrap();
        (dir.path().join(name).join("tls-cert.pem"), dir.path().join(name).join("tls-key.pem"))
    };
    let (valid, expired) = (make("valid", now), make("expired", two_years_earlier));
    let used = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let copies = std::cell::Cell::new(0);
    let copy = |from: &(std::path::PathBuf, std::path::PathBuf)| {
        copies.set(copies.get() + 1);
        for (from, to) in [(&from.0, &used.0), (&from.1, &used.1)] {
            std::fs::copy(from, to).unwrap();
            // Each copy has another time, however coarse the clock is.
            let file = std::fs::File::options().write(true).open(to).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(copies.get())).unwrap();
        }
    };
    copy(&valid);
    let config = || TlsConfig::Own { certificate: used.0.clone(), key: used.1.clone() };
    let tls = Tls::load_at(config(), now).unwrap();
    let first = tls.certificate();
    copy(&expired);
    let refused = check(&tls, None);
    assert!(refused.is_some());
    assert_eq!(tls.certificate(), first);
    copy(&valid);
    assert!(check(&tls, refused).is_none());
    // A start has nothing better.
    copy(&expired);
    let tls = Tls::load_at(config(), now).unwrap();
    assert!(tls.certificate().not_after < now());
    // What is served has expired, too.
    copy(&valid);
    assert!(check(&tls, None).is_none());
    assert_eq!(tls.certificate(), first);
}
