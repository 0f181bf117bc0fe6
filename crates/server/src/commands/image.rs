//! `sandboxd image`: the catalogue, its images on this host, and which others accounts may name.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use image::{Catalogue, Image, ImageSource, Images};
use rules::{AddedPattern, ImageReference};
use rustix::fs::{FlockOperation, flock};
use service::image_access::{AllowedImages, Changed};
use service::images::layers_in_use;
use store::{SqliteStore, Store};

use crate::app::{catalogue, images_lock, make_private_dir, open_existing_images, open_images};
use crate::cli::ImageCommand;
use crate::config::Config;
use crate::start_check::unknown_account;
use crate::{progress, stdout};

pub async fn run(config: &Config, command: ImageCommand) -> Result<ExitCode> {
    match command {
        ImageCommand::List => list(&open_existing_images(config)?, &catalogue(config)?).await?,
        // An image can be pulled or imported before the first start of the daemon.
        ImageCommand::Pull { names } => {
            let images = open_images(config)?;
            for name in names {
                if let Some(meant) = meant_by(&name, &images.operator_names()) {
                    eprintln!(
                        "sandboxd: '{name}' is no name of the catalogue, so it is pulled from its registry; did you mean '{meant}'?"
                    );
                }
                let pulled = progress::show(|report| images.pull(&name, report)).await;
                print!("{}", describe(&*pulled?));
            }
        }
        ImageCommand::Import { name, source } => {
            let source: ImageSource = source.parse()?;
            let images = open_images(config)?;
            let imported = progress::show(|report| images.import(&name, source, report)).await;
            print!("{}", describe(&*imported?));
        }
        ImageCommand::Remove { name } => remove(config, &name).await?,
        ImageCommand::Allow { pattern, account } => allow(config, AddedPattern { pattern, account })?,
        ImageCommand::Disallow { pattern, account } => disallow(config, &AddedPattern { pattern, account })?,
        ImageCommand::Allowed => {
            let added = AllowedImages::in_dir(&config.data_dir).read()?;
            for pattern in config.images.policy()?.patterns().iter().chain(&added) {
                println!("{}", line_of(pattern));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The image of the catalogue that a name without its tag means, such as `ubuntu:24.04` for `ubuntu`.
fn meant_by<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    if known.iter().any(|known| known == name) {
        return None;
    }
    let repository =
        |name: &str| name.split_once(':').map_or_else(|| name.to_owned(), |(name, _)| name.to_owned());
    known.iter().map(String::as_str).find(|known| repository(known) == repository(name))
}

async fn remove(config: &Config, name: &str) -> Result<()> {
    let images = open_existing_images(config)?;
    // An image of a registry is stored under its complete reference.
    let complete = ImageReference::parse(name).map(|reference| reference.to_string());
    let mut removed = images.remove(name).await?;
    let mut names = vec![name.to_owned()];
    if let Some(complete) = complete.filter(|_| !removed) {
        removed = images.remove(&complete).await?;
        names.push(complete);
    }
    ensure!(removed, "no image '{name}' on this host");
    println!("{}", removal_text(name, sandboxes_of(config, &names).await?));
    collect_garbage(config, &images).await
}

fn removal_text(name: &str, sandboxes: usize) -> String {
    let removed = format!("{name} is removed: creates do not find it on this host any more");
    match sandboxes {
        0 => removed,
        1 => format!("{removed}; 1 sandbox has this image and goes on with its layers"),
        many => format!("{removed}; {many} sandboxes have this image and go on with its layers"),
    }
}

/// How many sandboxes were created from an image with one of these names.
async fn sandboxes_of(config: &Config, names: &[String]) -> Result<usize> {
    let Some(store) = store_of_host(config)? else { return Ok(0) };
    let living = store.living().await;
    store.close().await;
    Ok(living?.iter().filter(|record| names.contains(&record.config.image)).count())
}

fn allow(config: &Config, pattern: AddedPattern) -> Result<()> {
    make_private_dir(&config.data_dir)?;
    let text = line_of(&pattern);
    if let Some(account) = &pattern.account
        && let Some(lack) = unknown_account(&config.data_dir, account)
    {
        eprintln!("sandboxd: warning: '{account}': {lack}");
    }
    match AllowedImages::in_dir(&config.data_dir).allow(pattern)? {
        Changed::Yes => println!("allowed: {text}"),
        Changed::No => println!("allowed already: {text}"),
    }
    Ok(())
}

fn disallow(config: &Config, pattern: &AddedPattern) -> Result<()> {
    make_private_dir(&config.data_dir)?;
    let text = line_of(pattern);
    let changed = AllowedImages::in_dir(&config.data_dir).disallow(pattern)?;
    ensure!(
        changed == Changed::Yes,
        "'sandboxd image allow' has not added this: {text}; patterns of the configuration are removed there"
    );
    println!("no longer allowed: {text}");
    Ok(())
}

fn line_of(added: &AddedPattern) -> String {
    match &added.account {
        Some(account) => format!("{} for the account '{account}'", added.pattern),
        None => format!("{} for all accounts", added.pattern),
    }
}

async fn list(images: &Images, catalogue: &Catalogue) -> Result<()> {
    for image in images.list().await? {
        stdout::print(&describe(&image))?;
    }
    let here: HashSet<String> = images.list().await?.iter().map(|image| image.name.clone()).collect();
    for name in images.names() {
        if !here.contains(&name) {
            match catalogue.sources(&name) {
                Some([_, ..]) => stdout::print(&format!(
                    "{name}\n  not on this host; pull it with 'sandboxd image pull {name}'\n"
                ))?,
                _ => stdout::print(&format!(
                    "{name}\n  has no source; set one under [images] in the configuration\n"
                ))?,
            }
        }
    }
    Ok(())
}

fn describe(image: &Image) -> String {
    let mut text = format!(
        "{}\n  source    {}\n  digest    {}\n  layers    {}, {} MB\n",
        image.name,
        image.source,
        image.digest,
        image.layers.len(),
        image.size_bytes / 1_048_576
    );
    if !image.versions.is_empty() {
        let versions: Vec<String> =
            image.versions.iter().map(|(program, version)| format!("{program} {version}")).collect();
        text.push_str(&format!("  has       {}\n", versions.join(", ")));
    }
    if let Some(stand_in) = &image.stand_in {
        text.push_str(&format!("  STAND-IN  {stand_in}\n"));
    }
    text
}

/// Removes unused layers, unless a daemon or `sandboxd run` holds the lock; then a later call does.
async fn collect_garbage(config: &Config, images: &Images) -> Result<()> {
    let lock = images_lock(config)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!(
            "sandboxd: the layers are kept, because the daemon or 'sandboxd run' is active; 'sandboxd image remove' removes them when neither is"
        );
        return Ok(());
    }
    images.collect_garbage(&layers_of_host(config).await?).await?;
    Ok(())
}

/// The layers that sandboxes and snapshots of this host use.
async fn layers_of_host(config: &Config) -> Result<HashSet<PathBuf>> {
    let Some(store) = store_of_host(config)? else { return Ok(HashSet::new()) };
    let layers = layers_in_use(&store).await;
    store.close().await;
    Ok(layers?)
}

/// `None` before the first start of the daemon.
fn store_of_host(config: &Config) -> Result<Option<SqliteStore>> {
    let path = config.data_dir.join("store.db");
    Ok(if path.exists() { Some(SqliteStore::open_beside(&path)?) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_its_tag_means_one_of_the_catalogue() {
        let known = ["python:3.12", "ubuntu:24.04"].map(str::to_owned);
        assert_eq!(meant_by("ubuntu", &known), Some("ubuntu:24.04"));
        assert_eq!(meant_by("ubuntu:22.04", &known), Some("ubuntu:24.04"));
        assert_eq!(meant_by("ubuntu:24.04", &known), None);
        assert_eq!(meant_by("ghcr.io/acme/ubuntu", &known), None);
    }

    #[test]
    fn a_removal_names_the_sandboxes_that_go_on() {
        assert!(removal_text("a:1", 0).starts_with("a:1 is removed"));
        assert!(removal_text("a:1", 1).ends_with("1 sandbox has this image and goes on with its layers"));
        assert!(removal_text("a:1", 2).contains("2 sandboxes have"));
    }
}
