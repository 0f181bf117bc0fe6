//! Images that tests add to those that all tests share. Each is built once, by the code that builds images for users.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use base::IgnorePoison;
use image::{Catalogue, Images};

use crate::options::workspace;

/// Adds an image that is built from `source`. Blocks until it is there.
pub fn build(name: &str, source: &str) -> Result<()> {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().ignore_poison();
    if built.contains(name) {
        return Ok(());
    }
    // On a separate thread, because the caller may be inside a runtime.
    let build = || std::thread::scope(|scope| scope.spawn(|| build_now(name, source)).join());
    build().map_err(|_| anyhow::anyhow!("the building thread panicked"))?.with_context(|| name.to_owned())?;
    built.insert(name.to_owned());
    Ok(())
}

fn build_now(name: &str, source: &str) -> Result<()> {
    let mut catalogue = Catalogue::default();
    catalogue.set(name, &[source])?;
    let root = workspace().join("target/test-images/images");
    std::fs::create_dir_all(&root)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let images = Images::open(&root, catalogue, image::Options::default())?;
        images.ensure(name, Arc::new(|_| {})).await?;
        images.close().await;
        Ok(())
    })
}
