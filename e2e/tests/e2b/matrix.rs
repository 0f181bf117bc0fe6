//! Each pinned release of each package.

use std::path::{Path, PathBuf};

use e2e::code_image;
use futures_util::future::join_all;

use crate::{Address, E2bService, Language};

/// Runs a program with all releases at the same time.
async fn all_pass(e2b: &E2bService, language: Language, releases: &[PathBuf], name: &str) {
    join_all(releases.iter().map(|packages| e2b.passes(language.command(packages, name)))).await;
}

async fn manage_sandboxes(language: Language) {
    let Some(releases) = language.packages() else { return };
    let e2b = E2bService::start().await;
    all_pass(&e2b, language, &releases, "basic").await;
    for packages in &releases {
        // One after the other, because all use the same name of a snapshot.
        e2b.passes(language.command(packages, "snapshots")).await;
    }
    let newest: &Path = &releases[0];
    // Without a domain, the programs know only the URL of the service. Files of builds go there, too.
    let programs: &[&str] = match language {
        Language::Python => &["templates", "builds", "domain"],
        Language::JavaScript => &["templates", "domain"],
    };
    for name in programs {
        e2b.passes_with(&e2b.key, Address::Url, language.command(newest, name)).await;
    }
}

async fn run_code(language: Language) {
    let Some(releases) = language.code_packages() else { return };
    tokio::task::spawn_blocking(code_image::build).await.unwrap().unwrap();
    let e2b = E2bService::start().await;
    all_pass(&e2b, language, &releases, "code").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_packages_manage_sandboxes() {
    manage_sandboxes(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_packages_manage_sandboxes() {
    manage_sandboxes(Language::JavaScript).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_packages_run_code() {
    run_code(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_packages_run_code() {
    run_code(Language::JavaScript).await;
}
