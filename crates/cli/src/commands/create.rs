//! `sbx create`: creates a sandbox and prints its id.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, OnTimeout};

use super::command_line;
use super::creation::{Creation, CreationOptions, create_sandbox};
use super::variables::variables;
use crate::cli::CreateArguments;
use crate::interrupt::Interrupt;
use crate::output;

pub async fn create(client: &Client, json: bool, arguments: CreateArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let env = variables(&arguments.new.env_file, &arguments.new.env)?;
    let request = |client: &Client, image: &str| {
        let mut create = command_line::create_request(client, image, &arguments.new, &env);
        if let Some(timeout) = arguments.timeout {
            create = create.timeout(timeout);
        }
        if arguments.pause_on_timeout {
            create = create.on_timeout(OnTimeout::Pause);
        }
        if arguments.no_auto_resume {
            create = create.auto_resume(false);
        }
        if let Some(idle) = arguments.idle {
            create = create.idle_timeout(idle);
        }
        create
    };
    let (image, wait) = (arguments.image.as_str(), arguments.new.wait);
    let options = CreationOptions { client, image, wait, quiet: json, interrupt: &interrupt };
    let sandbox = match create_sandbox(options, request).await? {
        Creation::Sandbox(sandbox) => sandbox,
        Creation::Interrupted(code) => return Ok(ExitCode::from(code)),
    };
    if json {
        output::json(&sandbox.known())?;
    } else {
        output::text(&format!("{}\n", sandbox.id()))?;
    }
    Ok(ExitCode::SUCCESS)
}
