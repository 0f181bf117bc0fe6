//! `sbx inspect`: everything that the service says about sandboxes, as a JSON array.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::each::{Done, Form, each};

pub async fn inspect(client: &Client, ids: &[String]) -> Result<ExitCode> {
    each(ids, Form::Array, async |id: &String| {
        let view = client.sandbox(id)?.refresh().await?;
        Done::new(id, view).map(Some)
    })
    .await
}
