//! `sandboxd image`: the catalogue, and its images on this host.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use image::{Catalogue, Image, Images, Source};
use rustix::fs::{FlockOperation, flock};
use store::{SqliteStore, Store};

use crate::app::{catalogue, images_lock, open_existing_images, open_images};
use crate::cli::ImageCommand;
use crate::config::Config;
use crate::progress;

pub async fn run(config: &Config, command: ImageCommand) -> Result<ExitCode> {
    // An image can be pulled or imported before the first start of the daemon.
    let images = match &command {
        ImageCommand::Pull { .. } | ImageCommand::Import { .. } => open_images(config)?,
        ImageCommand::List | ImageCommand::Remove { .. } => open_existing_images(config)?,
    };
    match command {
        ImageCommand::List => list(&images, &catalogue(config)?).await?,
        ImageCommand::Pull { name } => {
            let pulled = images.pull(&name, progress::reporter()).await;
            progress::finish();
            print!("{}", describe(&*pulled?));
        }
        ImageCommand::Import { name, source } => {
            let source: Source = source.parse()?;
            let imported = images.import(&name, source, progress::reporter()).await;
            progress::finish();
            print!("{}", describe(&*imported?));
        }
        ImageCommand::Remove { name } => {
            anyhow::ensure!(images.remove(&name).await?, "no image '{name}' on this host");
            collect_garbage(config, &images).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(images: &Images, catalogue: &Catalogue) -> Result<()> {
    for image in images.list().await? {
        print!("{}", describe(&image));
    }
    let here: HashSet<String> = images.list().await?.iter().map(|image| image.name.clone()).collect();
    for name in images.names() {
        if !here.contains(&name) {
            match catalogue.sources(&name) {
                Some([_, ..]) => {
                    println!("{name}\n  not on this host; pull it with 'sandboxd image pull {name}'");
                }
                _ => println!("{name}\n  has no source; set one under [images] in the configuration"),
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
    images.collect_garbage(&layers_in_use(config).await?).await?;
    Ok(())
}

/// The layers that sandboxes of this host use, including paused ones, and those below snapshots.
async fn layers_in_use(config: &Config) -> Result<HashSet<PathBuf>> {
    let path = config.data_dir.join("store.db");
    if !path.exists() {
        return Ok(HashSet::new());
    }
    let store = SqliteStore::open_beside(&path)?;
    let (living, snapshots) = (store.living().await?, store.snapshots().await?);
    store.close().await;
    let layers = living.into_iter().map(|record| record.layers);
    let layers = layers.chain(snapshots.into_iter().map(|record| record.layers));
    Ok(layers.flatten().map(PathBuf::from).collect())
}
