//! Creating, reusing and refusing certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use futures_util::FutureExt;
use time::Duration;
use time::macros::datetime;

use super::*;

const THEN: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

fn then() -> OffsetDateTime {
    THEN
}

fn day_334() -> OffsetDateTime {
    THEN + Duration::days(334)
}

fn day_336() -> OffsetDateTime {
    THEN + Duration::days(336)
}

fn earlier() -> OffsetDateTime {
    THEN - Duration::days(100)
}

fn own(dir: &Path, names: &[&str]) -> SelfSigned {
    SelfSigned { dir: dir.join("tls"), names: names.iter().map(|&it| it.to_owned()).collect() }
}

fn load(own: &SelfSigned, now: fn() -> OffsetDateTime) -> Result<Tls, TlsError> {
    Tls::load_at(TlsConfig::SelfSigned(own.clone()), now)
}

fn text(own: &SelfSigned) -> (String, String) {
    let (certificate, key) = self_signed::paths(own);
    (fs::read_to_string(certificate).unwrap(), fs::read_to_string(key).unwrap())
}

#[test]
fn a_certificate_is_created_once_and_reused() {
    let dir = tempfile::tempdir().unwrap();
    let own = own(dir.path(), &["localhost", "sandbox.example", "127.0.0.1", "::1"]);
    let tls = load(&own, then).unwrap();
    assert_eq!(tls.certificate().not_after, THEN + Duration::days(365));
    let (certificate, key) = self_signed::paths(&own);
    assert_eq!(tls.certificate().file, certificate);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&certificate).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(fs::metadata(&own.dir).unwrap().permissions().mode() & 0o777, 0o700);
    let first = text(&own);
    load(&own, day_334).unwrap();
    assert_eq!(text(&own), first);
    assert_eq!(fs::read_dir(&own.dir).unwrap().count(), 3, "no other file is left");
}

/// The last certificates of the list are those of the chain, also after a renewal.
#[test]
fn the_list_of_authorities_ends_with_the_certificate_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let own = own(dir.path(), &["localhost"]);
    for now in [then as fn() -> OffsetDateTime, day_336] {
        let tls = load(&own, now).unwrap();
        let authorities = fs::read_to_string(tls.certificate().authorities()).unwrap();
        assert!(authorities.ends_with(&text(&own).0), "{}", authorities.len());
        let own_count = files::chain(&tls.certificate().file).unwrap().len();
        assert!(files::chain(&tls.certificate().authorities()).unwrap().len() >= own_count);
    }
}

#[test]
fn a_new_certificate_ends_the_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let own = own(dir.path(), &["localhost"]);
    let tls = load(&own, then).unwrap();
    let first = tls.certificate();
    assert_eq!(first.der[..], files::chain(&first.file).unwrap()[0][..]);
    assert_eq!(tls.replaced(&first).now_or_never(), None);
    tls.replace(obtain(&TlsConfig::SelfSigned(own), day_336()).unwrap());
    assert_eq!(tls.replaced(&first).now_or_never(), Some(()));
    assert_eq!(tls.replaced(&tls.certificate()).now_or_never(), None);
}

#[test]
fn an_unusable_certificate_is_recreated() {
    let dir = tempfile::tempdir().unwrap();
    let first_names = own(dir.path(), &["localhost"]);
    load(&first_names, then).unwrap();
    let mut last = text(&first_names);
    let mut changed = |own: &SelfSigned, now: fn() -> OffsetDateTime, why: &str| {
        let tls = load(own, now).unwrap();
        let new = text(own);
        assert!(new.0 != last.0 && new.1 != last.1, "{why}");
        assert_eq!(tls.certificate().not_after, now() + Duration::days(365), "{why}");
        last = new;
    };
    changed(&first_names, day_336, "30 days before its end");
    changed(&first_names, earlier, "the clock was set back");
    let wide = own(dir.path(), &["localhost", "*.sandboxes.localhost"]);
    changed(&wide, earlier, "a wildcard");
    let before = text(&wide);
    load(&wide, earlier).unwrap();
    assert_eq!(text(&wide), before, "it covers the names below");
    changed(&own(dir.path(), &["localhost", "*.other.localhost"]), earlier, "another wildcard");
    let names = own(dir.path(), &["localhost", "127.0.0.1"]);
    changed(&names, earlier, "another name");
    let (certificate, key) = self_signed::paths(&names);
    fs::remove_file(&key).unwrap();
    changed(&names, earlier, "its key is missing");
    fs::write(&certificate, "garbage").unwrap();
    changed(&names, earlier, "it is malformed");
    let other = tempfile::tempdir().unwrap();
    let stranger = own(other.path(), &["localhost", "127.0.0.1"]);
    load(&stranger, earlier).unwrap();
    fs::copy(self_signed::paths(&stranger).1, &key).unwrap();
    changed(&names, earlier, "a crash left files that do not match");
}

#[test]
fn invalid_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for names in [&[][..], &["not a name"], &["a..b"], &[""], &["*."], &["*"], &["a.*.b"]] {
        let error = load(&own(dir.path(), names), then).err();
        let error = error.unwrap_or_else(|| panic!("{names:?}")).to_string();
        assert!(error.contains("DNS names or IP addresses"), "{error}");
    }
    assert!(!dir.path().join("tls").exists());
}

#[test]
fn an_unusable_certificate_of_the_operator_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (own(&dir.path().join("1"), &["localhost"]), own(&dir.path().join("2"), &["localhost"]));
    load(&one, then).unwrap();
    load(&two, then).unwrap();
    let ((certificate, key), (_, other_key)) = (self_signed::paths(&one), self_signed::paths(&two));
    let (missing, garbage) = (dir.path().join("missing"), dir.path().join("garbage"));
    fs::write(&garbage, "garbage").unwrap();
    let (half, wrong) = (dir.path().join("half"), dir.path().join("wrong"));
    let pem = fs::read_to_string(&certificate).unwrap();
    fs::write(&half, &pem[..pem.len() / 2]).unwrap();
    fs::write(&wrong, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let try_pair = |certificate: &Path, key: &Path| {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Tls::load(TlsConfig::Own { certificate, key }).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(try_pair(&certificate, &key), "");
    for (certificate, key, expected) in [
        (&missing, &key, "cannot read"),
        (&certificate, &missing, "cannot read"),
        (&garbage, &key, "has no certificate in PEM"),
        (&certificate, &garbage, "has no private key in PEM"),
        (&key, &key, "has no certificate in PEM"),
        (&half, &key, "is not valid PEM"),
        (&wrong, &key, "is not a valid X.509 certificate"),
        (&certificate, &other_key, "do not work together"),
    ] {
        let error = try_pair(certificate, key);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn dates_of_malformed_certificates_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let own = own(dir.path(), &["localhost"]);
    load(&own, then).unwrap();
    let chain = files::chain(&self_signed::paths(&own).0).unwrap();
    let whole = &chain[0][..];
    assert_eq!(der::not_before(whole), Some(THEN - Duration::days(1)));
    assert_eq!(der::not_after(whole), Some(THEN + Duration::days(365)));
    for length in 0..whole.len() {
        assert_eq!(der::not_after(&whole[..length]), None);
        let mut changed = whole.to_vec();
        changed[length] ^= 0xff;
        // Must not panic for any input.
        let _ = der::not_after(&changed);
    }
}
