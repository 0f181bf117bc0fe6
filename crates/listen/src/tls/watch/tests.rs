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
    let (files, when) = refused.clone().unwrap();
    let again = check(&tls, refused);
    assert_eq!(again.clone().unwrap(), (files, when), "the error is not logged again");
    std::fs::write(&made, good).unwrap();
    assert!(check(&tls, again).is_none());
}
