//! Images of the service, with the progress of pulls.

use api::{ImageList, ImageView};

use crate::Result;
use crate::client::Client;
use crate::transport::{Call, encoded};

const LARGEST_PAGE: u64 = 100;

impl Client {
    /// Lists the images on the service's host and the pulls in progress, sorted by name. Of images of registries that
    /// creates may name, those that this account has requested are listed; see [`image`](Self::image).
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
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

    /// Returns one image, if it is on the service's host or being pulled.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
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
        // The service may list the image under the complete form of its name.
        let exact = page.data.iter().position(|image| image.name == name.as_ref());
        Ok(page.data.into_iter().nth(exact.unwrap_or(0)))
    }
}
