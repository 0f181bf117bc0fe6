//! The commands, one per file. Each returns the exit code.

mod batch;
mod bench;
mod command_line;
mod complete;
mod cp;
mod create;
mod creation;
mod detached;
mod events;
mod exec;
mod expose;
mod follow;
mod images;
mod input;
mod inspect;
mod key;
mod login;
mod logs;
mod ls;
mod man;
mod merged_lists;
mod open;
mod pause;
mod ports;
mod ps;
mod resume;
mod rm;
mod run;
mod shell;
mod top;
mod transfer;
mod unexpose;
mod usage;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Cli, Verb};
use crate::output;
use crate::{completion, context};

pub async fn dispatch(cli: Cli) -> Result<ExitCode> {
    let (global, json) = (&cli.global, cli.global.json);
    let client = || context::client(global);
    match cli.verb {
        Verb::Login(arguments) => login::login(global, arguments).await,
        Verb::Man { dir } => man::man(&dir),
        Verb::Complete { words } => complete::complete(global, &words).await,
        Verb::Completion { shell } => {
            output::text(completion::script(shell))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Run(arguments) => run::run(&client()?, json, arguments).await,
        Verb::Create(arguments) => create::create(&client()?, json, arguments).await,
        Verb::Exec(arguments) => exec::exec(&client()?, json, arguments).await,
        Verb::Shell(arguments) => shell::shell(&client()?, arguments).await,
        Verb::Logs(arguments) => logs::logs(&client()?, json, &arguments).await,
        Verb::Ls(arguments) => ls::ls(&client()?, json, &arguments).await,
        Verb::Images => images::images(&client()?, json).await,
        Verb::Usage => usage::usage(&client()?, json).await,
        Verb::Inspect(ids) => inspect::inspect(&client()?, &ids.ids).await,
        Verb::Ps(arguments) => ps::ps(&client()?, json, &arguments).await,
        Verb::Top(arguments) => top::top(&client()?, json, &arguments).await,
        Verb::Pause(ids) => pause::pause(&client()?, json, &ids.ids).await,
        Verb::Resume(ids) => resume::resume(&client()?, json, &ids.ids).await,
        Verb::Rm(arguments) => rm::rm(&client()?, json, arguments).await,
        Verb::Cp(arguments) => cp::cp(&client()?, json, &arguments).await,
        Verb::Events(arguments) => events::events(&client()?, json, &arguments).await,
        Verb::Key(verb) => key::key(global, json, &verb).await,
        Verb::Bench(arguments) => bench::bench(&client()?, json, &arguments).await,
        Verb::Ports(arguments) => ports::ports(&client()?, json, &arguments).await,
        Verb::Expose(arguments) => expose::expose(&client()?, json, &arguments).await,
        Verb::Unexpose(arguments) => unexpose::unexpose(&client()?, json, &arguments).await,
        Verb::Open(arguments) => open::open(&client()?, json, &arguments).await,
    }
}
