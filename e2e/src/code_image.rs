//! The image `code-interpreter` of the default catalogue. Built once for all tests, by the code that builds images for users.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use image::{Catalogue, Images};

use crate::options::workspace;

/// The image's name.
pub const IMAGE: &str = "code-interpreter";

/// Adds it to the images that all tests share. It has the interpreter of this tree.
pub fn build() -> Result<()> {
    static BUILT: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    // On a separate thread, because the caller may be inside a runtime.
    let build = || {
        let built = std::thread::spawn(|| build_now().map_err(|error| format!("{error:#}"))).join();
        built.map_err(|_| "the building thread panicked".to_owned())?
    };
    BUILT.get_or_init(build).clone().map_err(anyhow::Error::msg)
}

fn build_now() -> Result<()> {
    let root = workspace().join("target/test-images/images");
    std::fs::create_dir_all(&root)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let images = Images::open(&root, Catalogue::default_set(), image::Options::default())?;
        let image = images.ensure(IMAGE, Arc::new(|_| {})).await?;
        if !image.layers.iter().any(|layer| is_current(layer).unwrap_or(false)) {
            // From an earlier state of this tree. The layers with Debian's packages are reused.
            images.remove(IMAGE).await?;
            images.ensure(IMAGE, Arc::new(|_| {})).await?;
        }
        images.close().await;
        Ok(())
    })
}

/// Whether a layer has the interpreter of this tree.
fn is_current(layer: &Path) -> Result<bool> {
    for file in std::fs::read_dir(workspace().join("packaging/code-interpreter/code_interpreter"))? {
        let path = file?.path();
        let Some(name) = path.file_name().filter(|_| path.is_file()) else { continue };
        let installed = layer.join("usr/local/lib/code-interpreter/code_interpreter").join(name);
        if std::fs::read(&path)? != std::fs::read(installed)? {
            return Ok(false);
        }
    }
    Ok(true)
}
