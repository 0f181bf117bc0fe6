//! What a `FROM` names. The server looks it up: among its images, and the templates and snapshots of the account.

use api::Isolation;
use async_trait::async_trait;
use dockerfile::ImageSettings;
use engine::Template as Image;

use crate::error::BuildError;

/// What a Dockerfile builds upon.
#[derive(Debug, Clone)]
pub struct Base {
    pub image: Image,
    pub settings: ImageSettings,
    /// Two bases with the same text have the same content.
    pub identity: String,
    /// The weakest isolation and the smallest disk of sandboxes above it.
    pub isolation: Isolation,
    pub disk_mb: u32,
}

/// Finds what a `FROM` names.
#[async_trait]
pub trait Bases: Send + Sync + 'static {
    /// An image, a template or a snapshot of the account. Waits for a pull.
    async fn find(&self, account: &str, name: &str) -> Result<Base, BuildError>;
}
