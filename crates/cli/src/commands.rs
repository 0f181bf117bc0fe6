//! The commands, one per file. Each returns the exit code.

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
mod man;
mod mcp;
mod merged_lists;
mod network;
mod open;
mod pause;
mod ports;
mod ps;
mod resume;
mod rm;
mod rollback;
mod run;
mod session;
mod shell;
mod snapshot;
mod snapshot_names;
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

use crate::cli::{Cli, Command};
use crate::output::{self, OutputFormat};
use crate::{completion, context};

pub async fn dispatch(cli: Cli) -> Result<ExitCode> {
    let global = &cli.global;
    let format = if global.json { OutputFormat::Json } else { OutputFormat::Plain };
    let client = || context::client(global);
    match cli.command {
        Command::Login(arguments) => login::login(global, arguments).await,
        Command::Mcp(arguments) => mcp::mcp(client()?, arguments).await,
        Command::Man { dir } => man::man(&dir),
        Command::Complete { words } => complete::complete(global, &words).await,
        Command::Completion { shell } => {
            output::text(completion::script(shell))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(arguments) => run::run(&client()?, format, arguments).await,
        Command::Create(arguments) => create::create(&client()?, format, arguments).await,
        Command::Exec(arguments) => exec::exec(&client()?, format, arguments).await,
        Command::Code(arguments) => code::code(&client()?, format, arguments).await,
        Command::Shell(arguments) => shell::shell(&client()?, arguments).await,
        Command::Logs(arguments) => logs::logs(&client()?, format, &arguments).await,
        Command::Kill(arguments) => kill::kill(&client()?, format, &arguments).await,
        Command::Ls(arguments) => ls::ls(&client()?, format, &arguments).await,
        Command::Images => images::images(&client()?, format).await,
        Command::Info => info::info(&client()?, format).await,
        Command::Usage => usage::usage(&client()?, format).await,
        Command::Inspect(ids) => inspect::inspect(&client()?, &ids.ids).await,
        Command::Ps(arguments) => ps::ps(&client()?, format, &arguments).await,
        Command::Top(arguments) => top::top(&client()?, format, &arguments).await,
        Command::Network(command) => network::network(&client()?, format, command).await,
        Command::Pause(arguments) => pause::pause(&client()?, format, &arguments).await,
        Command::Resume(arguments) => resume::resume(&client()?, format, &arguments).await,
        Command::Timeout(arguments) => timeout::timeout(&client()?, format, &arguments).await,
        Command::Snapshot(command) => snapshot::snapshot(&client()?, format, command).await,
        Command::Build(arguments) => build::build(&client()?, format, arguments).await,
        Command::Template(command) => template::template(&client()?, format, command).await,
        Command::Rollback(arguments) => rollback::rollback(&client()?, format, &arguments).await,
        Command::Fork(arguments) => fork::fork(&client()?, format, arguments).await,
        Command::Rm(arguments) => rm::rm(&client()?, format, arguments).await,
        Command::Cp(arguments) => cp::cp(&client()?, format, &arguments).await,
        Command::Events(arguments) => events::events(&client()?, format, &arguments).await,
        Command::Key(command) => key::key(global, format, &command).await,
        Command::Bench(arguments) => bench::bench(&client()?, format, &arguments).await,
        Command::Ports(arguments) => ports::ports(&client()?, format, &arguments).await,
        Command::Expose(arguments) => {
            let certificate = context::certificate(global);
            expose::expose(&client()?, format, certificate.as_deref(), &arguments).await
        }
        Command::Unexpose(arguments) => unexpose::unexpose(&client()?, format, &arguments).await,
        Command::Open(arguments) => open::open(&client()?, format, &arguments).await,
    }
}
