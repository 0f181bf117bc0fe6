//! The images of a service, and how far it is with those that it fetches.

use api::{ImageList, ImageView};

use crate::Result;
use crate::client::Client;
use crate::transport::{Call, encoded};

const LARGEST_PAGE: u64 = 100;

impl Client {
    /// The images that are on the server, of which a sandbox is made at once, and those that it is fetching; by name. Where a
    /// create may name any image of a registry, those that are not in the operator's catalogue are not among them; see
    /// [`image`](Self::image).
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # client.create("busy").without_waiting().await.unwrap_err();
    /// for image in client.images().await? {
    ///     println!("{} is {}", image.name, image.status);
    /// }
    /// # assert_eq!(client.images().await?.len(), 3);
    /// # Ok(()) });
    /// ```
    pub async fn images(&self) -> Result<Vec<ImageView>> {
        let mut images: Vec<ImageView> = Vec::new();
        loop {
            let path = format!("/v1/images?limit={LARGEST_PAGE}&offset={}", images.len());
            let page: ImageList = self.transport().json(Call::get(path)).await?;
            let ends = page.data.is_empty() || !page.pagination.has_more;
            images.extend(page.data);
            if ends {
                return Ok(images);
            }
        }
    }

    /// One image, if it is on the server or on its way there.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # client.create("busy").without_waiting().await.unwrap_err();
    /// let image = client.image("busy").await?.expect("somebody has asked for it");
    /// if let Some(progress) = image.progress {
    ///     println!("{} of {} bytes", progress.done_bytes, progress.total_bytes);
    /// }
    /// # assert_eq!(image.progress.unwrap().stage, sandboxd_client::PullStage::Resolving);
    /// assert_eq!(client.image("nobody:1").await?, None);
    /// # Ok(()) });
    /// ```
    pub async fn image(&self, name: impl AsRef<str>) -> Result<Option<ImageView>> {
        let path = format!("/v1/images?name={}", encoded(name.as_ref()));
        let page: ImageList = self.transport().json(Call::get(path)).await?;
        Ok(page.data.into_iter().find(|image| image.name == name.as_ref()))
    }
}
