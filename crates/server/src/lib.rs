//! The daemon as a library: `main` calls [`run`], and tests of other crates start the real router.
//!
//! [`run`] reads the configuration and hands over to one file per command in `commands`. With the feature `testing` the library
//! also has `testing`, a whole service on the fake driver; a normal build does not compile it.

mod app;
mod cli;
mod commands;
mod config;
mod doctor;
mod endpoint;
mod error;
mod explain;
mod first_key;
mod idempotency;
mod in_flight;
mod keyring;
mod layers;
mod limiter;
mod logs;
mod memory;
mod metrics;
mod new_key;
mod notify;
mod openapi;
mod output;
mod ports;
mod progress;
mod proxies;
mod relay;
mod request_id;
mod routes;
mod service;
mod sse;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::process::ExitCode;

use cli::{ConfigVerb, Verb};
use config::Config;

pub use cli::Cli;
pub use commands::EXIT_CODE_SANDBOXD_FAILED;
pub use error::chain_text;

/// Runs the command of a command line and returns its exit code.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // What needs no configuration must not fail over one.
    match cli.verb {
        Verb::Openapi => return commands::openapi::run(),
        Verb::Config(ConfigVerb::Reference) => return commands::config_reference::run(),
        _ => {}
    }
    let mut config = config::load(&cli.global)?;
    if let Verb::Serve(flags) = &cli.verb {
        config = config.with_flags(flags)?;
        logs::start(&config.log);
    } else {
        logs::start_quiet();
    }
    // As many workers as the host has processors: what waits for a disk or a runtime does so on threads of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(carry_out(&config, cli.verb));
    // A write to a reader that does not read may never end; all that matters is done.
    runtime.shutdown_background();
    code
}

async fn carry_out(config: &Config, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Serve(flags) => commands::serve::run(config, &flags).await,
        Verb::Key(verb) => commands::key::run(config, verb).await,
        Verb::Doctor => Ok(doctor::run(config)),
        Verb::Run(arguments) => commands::run::run(config, arguments).await,
        Verb::Egress(verb) => commands::egress::run(config, verb).await,
        Verb::Image(verb) => commands::image::run(config, verb).await,
        Verb::Openapi => commands::openapi::run(),
        Verb::Config(ConfigVerb::Reference) => commands::config_reference::run(),
    }
}
