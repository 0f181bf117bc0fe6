use super::*;

fn package(name: &str, version: &str, parent: &str) -> Package {
    Package {
        name: name.into(),
        version: version.into(),
        licence: Some("MIT".into()),
        source: Some("registry+https://github.com/rust-lang/crates.io-index".into()),
        parents: [parent.to_owned()].into(),
        ..Package::default()
    }
}

fn found(packages: Vec<Package>, config: &str) -> Vec<(&'static str, String)> {
    let text = format!("[licenses]\nallow = [\"MIT\"]\n{config}");
    let sources = [SourceFile { path: FILE.into(), text }];
    check(&Graph { packages }, &sources).unwrap().into_iter().map(|v| (v.rule, v.remedy)).collect()
}

fn rules(packages: Vec<Package>, config: &str) -> Vec<&'static str> {
    found(packages, config).into_iter().map(|(rule, _)| rule).collect()
}

#[test]
fn two_versions_are_found_unless_skipped_with_a_reason() {
    let twice = || vec![package("a", "1.0.0", "x"), package("a", "2.0.0", "y")];
    assert_eq!(rules(twice(), ""), ["one-version"]);
    assert!(
        rules(twice(), "[bans]\nskip = [{ crate = \"a@1.0.0\", reason = \"x is slow to move\" }]").is_empty()
    );
    assert_eq!(rules(twice(), "[bans]\nskip = [{ crate = \"a@1.0.0\" }]"), ["one-version"]);
}

#[test]
fn a_stale_skip_is_found() {
    let once = vec![package("a", "2.0.0", "x")];
    assert_eq!(
        rules(once, "[bans]\nskip = [{ crate = \"a@2.0.0\", reason = \"x is slow to move\" }]"),
        ["one-version"]
    );
}

#[test]
fn banned_packages_are_found_outside_their_wrappers() {
    let config = "[bans]\ndeny = [{ crate = \"a\", wrappers = [\"x\"], reason = \"only x\" }]";
    assert!(rules(vec![package("a", "1.0.0", "x")], config).is_empty());
    assert_eq!(
        found(vec![package("a", "1.0.0", "y")], config),
        [("ban", "y may not use a: only x".to_owned())]
    );
    let absent = "[bans]\ndeny = [{ crate = \"b\", reason = \"never\" }]";
    assert!(rules(vec![package("a", "1.0.0", "x")], absent).is_empty());
}

#[test]
fn licences_outside_the_list_are_found() {
    let mut gpl = package("a", "1.0.0", "x");
    gpl.licence = Some("GPL-3.0-only".into());
    assert_eq!(rules(vec![gpl.clone()], ""), ["licence"]);
    assert!(rules(vec![gpl], "exceptions = [{ crate = \"a\", allow = [\"GPL-3.0-only\"] }]").is_empty());
}

#[test]
fn packages_from_other_sources_are_found() {
    let mut git = package("a", "1.0.0", "x");
    git.source = Some("git+https://example.com/a".into());
    assert_eq!(rules(vec![git], ""), ["source"]);
}
