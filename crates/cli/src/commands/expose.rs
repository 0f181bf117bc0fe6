//! `sbx expose`: exposes ports of a sandbox.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::batch::{Form, ItemResult, for_each};
use crate::cli::ExposeArguments;

pub async fn expose(client: &Client, json: bool, arguments: &ExposeArguments) -> Result<ExitCode> {
    let sandbox = client.find(&arguments.id).await?;
    for_each(&arguments.ports, Form::of(json, arguments.ports.len()), async |port: &u16| {
        let mut expose = sandbox.expose(*port);
        if arguments.public {
            expose = expose.public();
        }
        if arguments.no_resume {
            expose = expose.auto_resume(false);
        }
        let port = expose.await?;
        ItemResult::new(&port.url, &port).map(Some)
    })
    .await
}
