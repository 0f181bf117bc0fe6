//! Templates: builds of images from Dockerfiles, their logs, and lists of them.

mod build;
mod list;
mod log;

use api::{BuildContext, TemplateDeleted, TemplateView};
use hyper::Method;

use crate::Result;
use crate::client::Client;
use crate::files::FileBody;
use crate::transport::retry::Safety;
use crate::transport::{ApiCall, encoded};

pub use build::BuildTemplate;
pub use list::Templates;
pub use log::{BuildLog, BuildOutput};

const TAR: &str = "application/x-tar";

impl Client {
    /// Uploads a build context, a tar archive. The service has it for an hour. [`BuildTemplate::context`] does it for one build.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("app.py"), "print(1)")?;
    /// # let project = dir.path();
    /// let context = client.upload_context(sandboxd_client::FileBody::directory(project)).await?;
    /// println!("{} {} bytes", context.id, context.size_bytes);
    /// # Ok(()) });
    /// ```
    pub async fn upload_context(&self, archive: FileBody) -> Result<BuildContext> {
        let call = ApiCall::new(Method::POST, "/v1/templates/contexts", Safety::Repeatable);
        self.transport().json(call.payload(archive.into_payload(), TAR)).await
    }

    /// Returns a template, with the progress of its build.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let accepted = client.build_template("web").dockerfile("FROM ubuntu:24.04\nWORKDIR /srv").await?;
    /// let template = client.template(accepted.id.as_str()).await?;
    /// println!("{} of {} steps", template.steps.done, template.steps.total);
    /// # Ok(()) });
    /// ```
    pub async fn template(&self, id: &str) -> Result<TemplateView> {
        self.transport().json(ApiCall::get(path_of(id, ""))).await
    }

    /// Cancels a build. Returns when nothing of it runs any more; a build that is over stays as it is.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let accepted = client.build_template("web").dockerfile("FROM ubuntu:24.04\nWORKDIR /srv").await?;
    /// assert!(client.cancel_template(accepted.id.as_str()).await?.state.is_final());
    /// # Ok(()) });
    /// ```
    pub async fn cancel_template(&self, id: &str) -> Result<TemplateView> {
        self.transport().json(ApiCall::new(Method::POST, path_of(id, "/cancel"), Safety::Repeatable)).await
    }

    /// Deletes a template, after its build is cancelled. Sandboxes that were created from it are not affected.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let accepted = client.build_template("web").dockerfile("FROM ubuntu:24.04\nWORKDIR /srv").await?;
    /// client.delete_template(accepted.id.as_str()).await?;
    /// let error = client.template(accepted.id.as_str()).await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::TemplateNotFound);
    /// # Ok(()) });
    /// ```
    pub async fn delete_template(&self, id: &str) -> Result<TemplateDeleted> {
        self.transport().json(ApiCall::new(Method::DELETE, path_of(id, ""), Safety::AfterAnswer)).await
    }
}

fn path_of(id: &str, part: &str) -> String {
    format!("/v1/templates/{}{part}", encoded(id))
}
