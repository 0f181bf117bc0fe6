//! Images of the service, with the progress of pulls.

use api::{ImageList, ImageView};

use crate::Result;
use crate::client::Client;
use crate::pager::{LARGEST_PAGE, Page, PageRange, PagedQuery, Pager};
use crate::transport::{ApiCall, encoded};

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
        Pager::new(AllImages { client: self.clone() }).all().await
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
        let page: ImageList = self.transport().json(ApiCall::get(path)).await?;
        // The service may list the image under the complete form of its name.
        let exact = page.data.iter().position(|image| image.name == name.as_ref());
        Ok(page.data.into_iter().nth(exact.unwrap_or(0)))
    }
}

/// The query for all images that the account may see.
struct AllImages {
    client: Client,
}

impl PagedQuery for AllImages {
    type Item = ImageView;
    type Key = String;

    fn page_size(&self) -> u32 {
        LARGEST_PAGE
    }

    fn key(image: &ImageView) -> String {
        image.name.clone()
    }

    async fn fetch(&self, range: PageRange) -> Result<Page<ImageView>> {
        self.client.transport().json(ApiCall::get(format!("/v1/images?{range}"))).await
    }
}
