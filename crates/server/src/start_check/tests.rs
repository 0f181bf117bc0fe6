//! What a start would refuse or could not use, beyond single values.

use std::os::unix::fs::PermissionsExt;

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
    for level in
        ["info", "info,engine=debug", "info,h2=warn,hyper=info,rustls=debug", "warn,engine::ledger=trace"]
    {
        assert_eq!(log_targets(level), [""; 0], "{level}");
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
