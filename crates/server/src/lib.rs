//! The daemon as a library: `main` calls [`run`], and tests of other crates start the real service.
//!
//! [`run`] reads the configuration and hands over to one file per command in `commands`. With the feature `testing` the library
//! also has `testing`, a whole service on the fake driver; a normal build does not compile it.

mod app;
mod cli;
mod commands;
mod config;
mod doctor;
mod explain;
mod first_key;
mod log_writer;
mod logs;
mod metrics;
mod new_key;
mod notify;
mod private_file;
mod progress;
mod replaced_database;
mod start_check;
mod stdout;

use std::process::ExitCode;

use admission::proxies;
use cli::{Command, ConfigCommand, Global};
use config::Config;
use service::origins;
use start_check::{StartCheck, close_own_secrets};

#[cfg(feature = "testing")]
pub use relay::testing;

pub use base::chain_text;
pub use cli::Cli;
pub use commands::EXIT_CODE_SANDBOXD_FAILED;

/// Runs the command of a command line and returns its exit code.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // What needs no configuration must not fail over one.
    match &cli.command {
        Command::Openapi => return commands::openapi::run(),
        Command::Config(ConfigCommand::Check(addresses)) => {
            return commands::config_check::run(&cli.global, addresses);
        }
        Command::Config(ConfigCommand::Reference) => return commands::config_reference::run(),
        _ => {}
    }
    let mut config = config::load(&cli.global)?;
    let level = logs::level_of_variable()?;
    if let Command::Serve(flags) = &cli.command {
        config = config.with_flags(flags)?;
        logs::start(&config.log, level.as_deref());
        for warning in start_check::warnings_of_variable(level.as_deref()) {
            tracing::warn!("{warning}");
        }
        close_own_secrets(&config.data_dir);
        StartCheck::of(&config, config::file(&cli.global)).report()?;
    } else {
        logs::start_quiet(level.as_deref());
    }
    // As many workers as the host has processors: what waits for a disk or a runtime does so on threads of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(carry_out(&config, &cli.global, cli.command));
    // A write to a reader that does not read may never end; all that matters is done.
    runtime.shutdown_background();
    code
}

async fn carry_out(config: &Config, global: &Global, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(flags) => commands::serve::run(config, &flags).await,
        Command::Key(command) => commands::key::run(config, command).await,
        Command::Accounts(arguments) => {
            commands::accounts::run(config, config::file(global), &arguments).await
        }
        Command::Sandboxes(arguments) => commands::sandboxes::run(config, &arguments).await,
        Command::Doctor => Ok(doctor::run(config)),
        Command::Run(arguments) => commands::run::run(config, arguments).await,
        Command::Egress(command) => commands::egress::run(config, command).await,
        Command::Image(command) => commands::image::run(config, command).await,
        Command::Openapi => commands::openapi::run(),
        Command::Config(ConfigCommand::Check(addresses)) => commands::config_check::run(global, &addresses),
        Command::Config(ConfigCommand::Reference) => commands::config_reference::run(),
    }
}
