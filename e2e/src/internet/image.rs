//! The image of sandboxes on this internet: Debian with common clients. Built once for all tests, by the code that builds
//! images for users.

use std::sync::{Arc, OnceLock};

use anyhow::Result;
use image::{Catalogue, Images};

use crate::options::workspace;

/// The image's name.
pub const IMAGE: &str = "network";
/// The image's packages.
pub const SOURCE: &str = "debian:bookworm+ca-certificates+curl+git+procps+python3+python3-pip+openssl\
    +bind9-dnsutils+wget+iputils-ping+iproute2+node22";

/// Adds it to the images that all tests share.
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
    let mut catalogue = Catalogue::default();
    catalogue.set(IMAGE, &[SOURCE])?;
    let root = workspace().join("target/test-images/images");
    std::fs::create_dir_all(&root)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let images = Images::open(&root, catalogue, image::Options::default())?;
        images.ensure(IMAGE, Arc::new(|_| {})).await?;
        images.close().await;
        Ok(())
    })
}
