//! `sbx create`: makes a sandbox and prints its id.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::made::{Made, Waiting, made};
use super::words;
use crate::cli::CreateArguments;
use crate::interrupt::Interrupt;
use crate::output;

pub async fn create(client: &Client, json: bool, arguments: CreateArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let ask = || {
        let mut create = words::new(client, &arguments.image, &arguments.new)?;
        if let Some(timeout) = arguments.timeout {
            create = create.timeout(timeout);
        }
        if let Some(idle) = arguments.idle {
            create = create.idle_timeout(idle);
        }
        Ok(create)
    };
    let (image, wait) = (arguments.image.as_str(), arguments.new.wait);
    let waiting = Waiting { client, image, wait, quiet: json, interrupt: &interrupt };
    let sandbox = match made(waiting, ask).await? {
        Made::Sandbox(sandbox) => sandbox,
        Made::Interrupted(code) => return Ok(ExitCode::from(code)),
    };
    if json {
        output::json(&sandbox.known())?;
    } else {
        output::text(&format!("{}\n", sandbox.id()))?;
    }
    Ok(ExitCode::SUCCESS)
}
