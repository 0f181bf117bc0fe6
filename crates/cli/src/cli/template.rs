//! Arguments of `sbx build` and `sbx template`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use sandboxd_client::IsolationChoice;

use super::{isolation, megabytes, pair, time, vcpus};

/// The tag that Docker adds to a name without one. A create from `NAME:latest` means the newest version of `NAME`, too.
const LATEST: &str = ":latest";

/// The arguments of `sbx build`.
#[derive(Debug, Args)]
pub struct BuildArguments {
    /// Directory of the build context [default: ., or none with -f -]
    #[arg(value_name = "PATH")]
    pub context: Option<PathBuf>,
    /// Name the template; the name is an image for new sandboxes; repeatable, for one template of each name
    #[arg(long, short = 't', value_name = "NAME", required = true, value_parser = template_name)]
    pub tag: Vec<String>,
    /// Use this Dockerfile, in the context or outside; - reads it from standard input [default: Dockerfile in the context]
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Build this stage of the Dockerfile, by its name or number, instead of the last one
    #[arg(long, value_name = "STAGE")]
    pub target: Option<String>,
    /// Set a build argument, or pass your variable with NAME alone; repeatable
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub build_arg: Vec<String>,
    /// Run this shell command in every sandbox from the template
    #[arg(long, value_name = "COMMAND")]
    pub start: Option<String>,
    /// Repeat this shell command until it succeeds; the start command is ready then
    #[arg(long, value_name = "COMMAND", requires = "start")]
    pub ready: Option<String>,
    /// Wait at most this long for the start command to be ready, such as 5m [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "start")]
    pub ready_timeout: Option<Duration>,
    /// Run all steps, also those with a cached result
    #[arg(long)]
    pub no_cache: bool,
    /// Set the number of vCPUs of the steps: 2, 4 or 8
    #[arg(long, value_name = "N", value_parser = vcpus)]
    pub cpu: Option<u32>,
    /// Set the memory of the steps: 2g to 16g
    #[arg(long, value_name = "SIZE", value_parser = megabytes)]
    pub memory: Option<u32>,
    /// Set the disk size of the steps: 5g to 50g
    #[arg(long, value_name = "SIZE", value_parser = megabytes)]
    pub disk: Option<u32>,
    /// Allow the steps only this domain, such as example.com or *.example.org; repeatable
    #[arg(long, value_name = "DOMAIN")]
    pub allow: Vec<String>,
    /// Set what separates the steps from the host; auto leaves the choice to the service [default: auto]
    #[arg(long, value_name = "BACKEND", value_parser = isolation())]
    pub isolation: Option<IsolationChoice>,
    /// End the build after this time, such as 2h [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Add metadata to the template; repeatable
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// Start the build, print the id of the template and exit
    #[arg(long, short)]
    pub detach: bool,
    /// Print only the id of the template
    #[arg(long, short)]
    pub quiet: bool,
}

/// Parses the name of a template as `-t` gives it, with the rules of the service, so that a mistake is found before a context is sent. The
/// service numbers the versions, so there are no other tags.
fn template_name(text: &str) -> Result<String, String> {
    let name = text.strip_suffix(LATEST).unwrap_or(text);
    let is_start = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.starts_with(is_start) && name.chars().all(|c| is_start(c) || "._/-".contains(c)) {
        return Ok(name.to_owned());
    }
    Err(match name.split_once(':') {
        Some((name, _)) => {
            format!("the versions of a template are numbered, so there are no tags: write -t {name}")
        }
        None => "expected lower-case letters, digits and '._/-', beginning with a letter or digit".to_owned(),
    })
}

/// The commands of `sbx template`.
#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// List templates and builds
    #[command(visible_alias = "ls")]
    List {
        /// List only templates with this name
        #[arg(long, short, value_name = "NAME")]
        name: Option<String>,
        /// List only templates with this metadata; repeatable
        #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair)]
        metadata: Vec<(String, String)>,
        /// Print only ids, one per line
        #[arg(long, short)]
        quiet: bool,
    },
    /// Show the log of a build, and follow it until the build is over
    Logs {
        /// Id of the template
        #[arg(value_name = "TEMPLATE")]
        id: String,
    },
    /// Cancel builds
    Cancel {
        /// Ids of the templates
        #[arg(value_name = "TEMPLATE", required = true)]
        ids: Vec<String>,
    },
    /// Delete templates; sandboxes that were created from them are not affected
    #[command(visible_alias = "delete")]
    Rm {
        /// Ids of the templates, NAME:VERSION, or names to delete all versions of
        #[arg(value_name = "TEMPLATE", required_unless_present = "failed")]
        ids: Vec<String>,
        /// Delete what is left of all builds that have failed or were cancelled
        #[arg(long, conflicts_with = "ids")]
        failed: bool,
    },
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, SbxCommand};

    fn build(words: &str) -> BuildArguments {
        match Cli::try_parse_from(["sbx", "build"].into_iter().chain(words.split(' '))).unwrap().command {
            SbxCommand::Build(build) => build,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_tag_latest_is_the_newest_version_of_a_name() {
        for (tag, name) in [("app", "app"), ("app:latest", "app"), ("team/app-2", "team/app-2")] {
            assert_eq!(build(&format!("-t {tag} .")).tag, [name]);
        }
    }

    #[test]
    fn a_template_may_have_several_names_and_needs_one() {
        assert_eq!(build("-t app -t team/app:latest .").tag, ["app", "team/app"]);
        assert!(Cli::try_parse_from(["sbx", "build", "."]).is_err());
    }

    #[test]
    fn names_that_the_service_refuses_are_found_before_a_request() {
        for (tag, part) in [("app:1.0", "write -t app"), (":latest", "beginning with"), ("App", "lower-case")]
        {
            let words = ["sbx", "build", "-t", tag, "."];
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(part), "{tag}: {error}");
        }
    }

    #[test]
    fn a_context_is_sent_only_if_it_is_given_or_has_the_dockerfile() {
        assert_eq!(build("-t app").context, None);
        assert_eq!(build("-t app -f - dir").context.as_deref(), Some(std::path::Path::new("dir")));
    }
}
