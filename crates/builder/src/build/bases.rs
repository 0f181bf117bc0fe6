//! What a `FROM` names. The server looks it up: among its images, and the templates and snapshots of the account.

use api::{Isolation, SandboxConfig};
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
    /// What a stand-in has in place of what its name promises.
    pub stand_in: Option<String>,
}

impl Base {
    /// Gives sandboxes above the base the isolation and the disk that it needs, unless they have stronger and larger ones.
    pub fn raise(&self, config: &mut SandboxConfig) {
        config.isolation = config.isolation.max(self.isolation);
        config.resources.disk_mb = config.resources.disk_mb.max(self.disk_mb);
    }
}

/// Finds what a `FROM` names.
#[async_trait]
pub trait Bases: Send + Sync + 'static {
    /// An image, a template or a snapshot of the account. Waits for a pull.
    async fn find(&self, account: &str, name: &str) -> Result<Base, BuildError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::tests::request;

    fn base(isolation: Isolation, disk_mb: u32) -> Base {
        Base {
            image: Image::of_image("a".to_owned(), "sha256:1".to_owned(), vec![], vec![]),
            settings: ImageSettings::default(),
            identity: "sha256:1".to_owned(),
            isolation,
            disk_mb,
            stand_in: None,
        }
    }

    #[test]
    fn steps_get_what_all_bases_need() {
        let mut config = request("FROM a\n", None).config;
        assert_eq!((config.isolation, config.resources.disk_mb), (Isolation::Container, 1024));
        base(Isolation::Container, 512).raise(&mut config);
        assert_eq!((config.isolation, config.resources.disk_mb), (Isolation::Container, 1024));
        base(Isolation::Gvisor, 4096).raise(&mut config);
        base(Isolation::Container, 2048).raise(&mut config);
        assert_eq!((config.isolation, config.resources.disk_mb), (Isolation::Gvisor, 4096));
    }
}
