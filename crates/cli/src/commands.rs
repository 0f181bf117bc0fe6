//! The commands, one per file. Each returns the exit code.

mod background;
mod batch;
mod bench;
mod build;
mod code;
mod code_results;
mod command_line;
mod complete;
mod cp;
mod create;
mod creation;
mod detached;
mod end;
mod events;
mod exec;
mod expose;
mod follow;
mod fork;
mod images;
mod info;
mod input;
mod inspect;
mod key;
mod kill;
mod login;
mod logs;
mod ls;
mod main_command;
mod man;
mod mcp;
mod merged_lists;
mod named_sandbox;
mod network;
mod open;
mod owner;
mod pause;
mod pause_watch;
mod ports;
mod probe;
mod ps;
mod resume;
mod rm;
mod rollback;
mod run;
mod session;
mod shell;
mod snapshot;
mod snapshot_names;
mod stats;
mod stored_output;
mod template;
mod timeout;
mod top;
mod transfer;
mod unexpose;
mod usage;
mod variables;
mod volume;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Cli, SbxCommand};
use crate::output::{self, OutputFormat};
use crate::{completion, context};

/// Runs the command of a command line and returns its exit code. Without a URL or a key it fails before the command begins.
pub async fn dispatch(cli: Cli) -> Result<ExitCode> {
    let global = &cli.global;
    let format = if global.json { OutputFormat::Json } else { OutputFormat::Plain };
    let client = || context::client(global);
    match cli.command {
        SbxCommand::Login(arguments) => login::login(global, arguments).await,
        SbxCommand::Mcp(arguments) => mcp::mcp(client()?, arguments).await,
        SbxCommand::Man { dir } => man::man(&dir),
        SbxCommand::Complete { words } => complete::complete(global, &words).await,
        SbxCommand::Completion { shell } => {
            output::text(completion::script(shell))?;
            Ok(ExitCode::SUCCESS)
        }
        SbxCommand::Run(arguments) => run::run(&client()?, format, arguments).await,
        SbxCommand::Create(arguments) => create::create(&client()?, format, arguments).await,
        SbxCommand::Exec(arguments) => exec::exec(&client()?, format, arguments).await,
        SbxCommand::Code(arguments) => code::code(&client()?, format, arguments).await,
        SbxCommand::Shell(arguments) => shell::shell(&client()?, arguments).await,
        SbxCommand::Logs(arguments) => logs::logs(&client()?, format, &arguments).await,
        SbxCommand::Kill(arguments) => kill::kill(&client()?, format, &arguments).await,
        SbxCommand::Ls(arguments) => ls::ls(&client()?, format, &arguments).await,
        SbxCommand::Images { quiet } => images::images(&client()?, format, quiet).await,
        SbxCommand::Info => info::info(&client()?, format).await,
        SbxCommand::Usage => usage::usage(&client()?, format).await,
        SbxCommand::Inspect(ids) => inspect::inspect(&client()?, &ids.ids).await,
        SbxCommand::Ps(arguments) => ps::ps(&client()?, format, &arguments).await,
        SbxCommand::Stats(arguments) => stats::stats(&client()?, format, &arguments).await,
        SbxCommand::Top(arguments) => top::top(&client()?, format, &arguments).await,
        SbxCommand::Network(command) => network::network(&client()?, format, command).await,
        SbxCommand::Pause(arguments) => pause::pause(&client()?, format, &arguments).await,
        SbxCommand::Resume(arguments) => resume::resume(&client()?, format, &arguments).await,
        SbxCommand::Timeout(arguments) => timeout::timeout(&client()?, format, &arguments).await,
        SbxCommand::Snapshot(command) => snapshot::snapshot(&client()?, format, command).await,
        SbxCommand::Build(arguments) => build::build(&client()?, format, arguments).await,
        SbxCommand::Template(command) => template::template(&client()?, format, command).await,
        SbxCommand::Rollback(arguments) => rollback::rollback(&client()?, format, &arguments).await,
        SbxCommand::Fork(arguments) => fork::fork(&client()?, format, arguments).await,
        SbxCommand::Rm(arguments) => rm::rm(&client()?, format, arguments).await,
        SbxCommand::Cp(arguments) => cp::cp(&client()?, format, &arguments).await,
        SbxCommand::Events(arguments) => events::events(&client()?, format, &arguments).await,
        SbxCommand::Key(command) => key::key(global, format, &command).await,
        SbxCommand::Bench(arguments) => bench::bench(&client()?, format, &arguments).await,
        SbxCommand::Ports(arguments) => ports::ports(&client()?, format, &arguments).await,
        SbxCommand::Expose(arguments) => {
            let certificate = context::certificate(global);
            expose::expose(&client()?, format, certificate.as_deref(), &arguments).await
        }
        SbxCommand::Unexpose(arguments) => unexpose::unexpose(&client()?, format, &arguments).await,
        SbxCommand::Open(arguments) => open::open(&client()?, format, &arguments).await,
    }
}
