//! What a start would refuse or could not use, beyond single values.

use std::os::unix::fs::PermissionsExt;

use admission::captured_log::CapturedLog;
use rules::{KeyLimits, TimeMs};
use store::{Batch, KeyRecord, SqliteStore, Store, Write};
use tempfile::TempDir;

use super::*;
use crate::cli::Global;

/// The errors and the warnings about a file in a directory with other files, from the key on.
fn found(dir: &TempDir, text: &str) -> (Vec<String>, Vec<String>) {
    let file = dir.path().join("config.toml");
    let text = format!("data_dir = \"{}\"\n{text}", dir.path().join("data").display());
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let global = Global { config: Some(file.clone()), ..Global::default() };
    let config = config::load(&global).unwrap();
    let StartCheck { errors, warnings } = StartCheck::of(&config, Some(&file));
    let begin = format!("{}:", file.display());
    let lines = |found: Result<(), Problems>| {
        let lines: Vec<String> = found.err().iter().flat_map(Problems::lines).collect();
        lines.iter().map(|line| line.strip_prefix(&begin).unwrap().to_owned()).collect()
    };
    (lines(errors), lines(warnings))
}

fn write(dir: &TempDir, name: &str, text: &str, mode: u32) {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn assert_one(lines: &[String], words: &[&str]) {
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(words.iter().all(|word| lines[0].contains(word)), "{lines:?}");
}

#[test]
fn the_defaults_have_nothing_to_report() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(found(&dir, ""), (Vec::new(), Vec::new()));
}

#[test]
fn a_proxy_that_is_not_listed_is_a_warning_if_ports_have_a_domain() {
    let dir = tempfile::tempdir().unwrap();
    let plain = "[http]\ntls = \"off\"\nlisten = \"127.0.0.1:8443\"\nredirect_listen = \"\"\n";
    let ports = "[ports]\ndomain = \"sandboxes.example.com\"\n";
    let (_, warnings) = found(&dir, &format!("{plain}{ports}"));
    assert_one(&warnings, &["7: ports.domain is 'sandboxes.example.com'", "http.trusted_proxies"]);
    assert_eq!(found(&dir, plain).1, Vec::<String>::new());
    let listed = format!("{plain}trusted_proxies = [\"127.0.0.1\"]\n{ports}");
    assert_eq!(found(&dir, &listed).1, Vec::<String>::new());
}

#[test]
fn a_program_that_is_not_installed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (errors, _) = found(&dir, "[isolation.container]\nprogram = \"no-such-runtime\"");
    assert_one(&errors, &["3: isolation.container.program is 'no-such-runtime'", "no such program"]);
}

#[test]
fn a_level_that_sandboxes_cannot_have_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (errors, _) = found(&dir, "[isolation]\ndefault = \"gvisor\"\n[isolation.gvisor]\nprogram = \"off\"");
    assert_one(&errors, &["3: isolation.default is 'gvisor'", "off by isolation.gvisor.program"]);
    let text = "[isolation.accounts.\"acme\"]\nminimum = \"gvisor\"\n[isolation.gvisor]\nprogram = \"off\"";
    assert_one(&found(&dir, text).0, &["3: isolation.accounts.\"acme\".minimum is 'gvisor'"]);
    let text =
        "[isolation]\ndefault = \"container\"\nminimum = \"gvisor\"\n[isolation.gvisor]\nprogram = \"off\"";
    assert_one(
        &found(&dir, text).0,
        &["3: isolation.default is 'container'", "weaker than isolation.minimum"],
    );
}

#[test]
fn malformed_credentials_are_an_error_and_open_ones_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[images]\ncredentials = \"logins.json\"";
    write(&dir, "logins.json", "{\"auths\": {}}", 0o600);
    assert_eq!(found(&dir, text), (Vec::new(), Vec::new()));
    write(&dir, "logins.json", "{\"auths\":", 0o640);
    let (errors, warnings) = found(&dir, text);
    assert_one(&errors, &["3: images.credentials: ", "line 1, column"]);
    assert_one(&warnings, &["3: images.credentials is '", "(mode 640)", "chmod 600"]);
}

#[test]
fn an_encrypted_key_is_named_by_its_own_key() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = ("cert.pem", "key.pem");
    let own = listen::SelfSigned { dir: dir.path().to_owned(), names: vec!["localhost".to_owned()] };
    listen::Tls::load(listen::TlsConfig::SelfSigned(own)).unwrap();
    std::fs::copy(dir.path().join("tls-cert.pem"), dir.path().join(certificate)).unwrap();
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n-----END ENCRYPTED PRIVATE KEY-----\n";
    write(&dir, key, encrypted, 0o644);
    let text = "[http]\ntls = \"files\"\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"";
    let (errors, warnings) = found(&dir, text);
    assert_one(&errors, &["5: http.tls_key: ", "is encrypted", "without a passphrase"]);
    assert_one(&warnings, &["5: http.tls_key is '", "(mode 644)"]);
}

#[test]
fn a_secret_in_a_file_that_others_read_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[snapshots]\naccess_key_id = \"id\"\nsecret_access_key = \"hunter2\"";
    let (errors, warnings) = found(&dir, text);
    assert_eq!(errors, [""; 0]);
    assert_one(&warnings, &["4: snapshots.secret_access_key is in a file", "(mode 644)"]);
    assert!(!warnings[0].contains("hunter2"));
}

#[test]
fn unknown_images_are_warnings() {
    let dir = tempfile::tempdir().unwrap();
    for (text, words) in [
        (
            "[pool]\n\"ubunto:24.04\" = 2",
            &["3: pool.\"ubunto:24.04\" names", "did you mean 'ubuntu:24.04'?"][..],
        ),
        ("[mcp]\nimage = \"ghcr.io/acme/x\"", &["3: mcp.image is 'ghcr.io/acme/x'"]),
        (
            "[e2b.templates.\"big\"]\nimage = \"pyton:3.12\"",
            &["3: e2b.templates.\"big\".image", "'python:3.12'?"],
        ),
        (
            "[isolation.images.\"noode:22\"]\nminimum = \"container\"",
            &["isolation.images.\"noode:22\"", "'node:22'?"],
        ),
    ] {
        let (errors, warnings) = found(&dir, text);
        assert_eq!(errors, [""; 0], "{text}");
        assert_one(&warnings, words);
    }
    for text in [
        "[pool]\n\"docker.io/library/ubuntu:24.04\" = 2",
        "[pool]\n\"mine\" = 2\n[images]\n\"mine\" = [\"rootfs:/x\"]",
        "[mcp]\nimage = \"ghcr.io/acme/x\"\n[images.accounts.\"acme\"]\nallow = [\"ghcr.io/acme/*\"]",
    ] {
        assert_eq!(found(&dir, text), (Vec::new(), Vec::new()), "{text}");
    }
    // An imported image.
    let records = dir.path().join("data/images/images");
    std::fs::create_dir_all(&records).unwrap();
    std::fs::write(records.join("imported.json"), "{}").unwrap();
    assert_eq!(found(&dir, "[pool]\n\"imported\" = 2").1, [""; 0]);
}

#[test]
fn a_capacity_that_is_too_small_for_any_sandbox_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let (_, warnings) = found(&dir, "[capacity]\nmemory_mb = 10");
    assert_one(&warnings, &["3: capacity.memory_mb is 10, 320 with overcommit", "needs 2048"]);
    assert_eq!(found(&dir, "[capacity]\nmemory_mb = 100").1, [""; 0]);
}

#[test]
fn a_mistyped_target_of_the_log_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let (_, warnings) = found(&dir, "[log]\nlevel = \"info,enigne=debug\"");
    assert_one(&warnings, &["3: log.level", "'enigne'", "did you mean 'engine'?"]);
    let warnings = warnings_of_variable(Some("info,enigne=debug"));
    assert_one(&warnings, &["SANDBOXD_LOG is 'info,enigne=debug'", "did you mean 'engine'?"]);
    assert_eq!(warnings_of_variable(None), [""; 0]);
    for level in
        ["info", "info,engine=debug", "info,h2=warn,hyper=info,rustls=debug", "warn,engine::ledger=trace"]
    {
        assert_eq!(log_targets("log.level", level), [""; 0], "{level}");
    }
}

#[test]
fn every_crate_of_this_program_is_a_target() {
    let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
    // Crates of other programs, and those whose name is not that of their directory.
    let others = ["agent", "api", "cli", "client", "launcher", "server"];
    for entry in crates {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            others.contains(&&*name) || LOG_TARGETS.contains(&&*name.replace('-', "_")),
            "{name} is not among the targets"
        );
    }
}

async fn put_key(store: &SqliteStore, account: &str) {
    let key = KeyRecord {
        id: format!("key_{account}"),
        hash: [0; 32],
        account: account.to_owned(),
        scopes: "read".to_owned(),
        name: None,
        prefix_hint: "sbk_ab12".to_owned(),
        created_at: TimeMs(1),
        revoked_at: None,
        expires_at: None,
        limits: KeyLimits::OfAccount,
    };
    store.commit(Batch::new().with(Write::PutKey(Box::new(key)))).await.unwrap();
}

#[tokio::test]
async fn settings_of_an_account_that_no_key_has_are_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[quotas.accounts.\"taem-a\"]\nvcpus = 4\n[limits.accounts.\"team-a\"]\nread_per_minute = 9";
    assert_eq!(found(&dir, text).1, [""; 0], "without a database");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let store = SqliteStore::open_beside(data.join("store.db")).unwrap();
    put_key(&store, "team-a").await;
    let words = ["2: quotas.accounts.\"taem-a\": no key has this account", "did you mean 'team-a'?"];
    assert_one(&found(&dir, text).1, &words);
    // Without a daemon there is no WAL, and the check makes no file.
    store.close().await;
    drop(store);
    let files = || std::fs::read_dir(&data).unwrap().count();
    let before = files();
    assert_one(&found(&dir, text).1, &words);
    assert_eq!(files(), before);
}

#[test]
fn secrets_of_the_service_that_others_read_are_a_warning_and_closed_by_a_start() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("data/tls")).unwrap();
    let files = ["local.key", "ports.secret", "e2b.secret", "snapshots.secret", "tls/tls-key.pem"];
    for file in files {
        write(&dir, &format!("data/{file}"), "secret", 0o644);
    }
    let (_, warnings) = found(&dir, "");
    assert_eq!(warnings.len(), files.len(), "{warnings:?}");
    for file in files {
        assert!(warnings.iter().any(|line| line.contains(file) && line.contains("(mode 644)")), "{file}");
    }
    let log = CapturedLog::default();
    let capture = log.begin();
    close_own_secrets(&dir.path().join("data"));
    drop(capture);
    assert_eq!(log.text().matches("others could read a file with secrets").count(), files.len());
    assert!(log.text().contains("sandboxd key revoke"), "{}", log.text());
    assert_eq!(found(&dir, "").1, [""; 0]);
}
