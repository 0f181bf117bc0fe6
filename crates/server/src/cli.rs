//! The command line.

use std::path::PathBuf;

use api::IsolationChoice;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use rules::{ImagePattern, KeyLifetime, KeyLimits, Scopes};

use crate::explain::Target;

/// Run isolated Linux sandboxes on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "sandboxd",
    version,
    after_help = "To remove sandboxd with all that it has made on this host, follow the section 'Remove' of docs/operations.md."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Flags whose empty value turns a listener off, also as a variable.
const OFF_IF_EMPTY: [&str; 2] = ["redirect-listen", "metrics-listen"];

impl Cli {
    /// The command line of this process. An empty variable counts as not set: files of variables have such lines.
    pub fn of_process() -> Self {
        let mut matches =
            without_empty_variables(Self::command()).try_get_matches().unwrap_or_else(|mut error| {
                explain(&mut error);
                error.exit()
            });
        Self::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit())
    }
}

/// Commands that tools like this one have for their removal.
const REMOVALS: [&str; 5] = ["clean", "cleanup", "prune", "purge", "uninstall"];
const REMOVAL: &str = "'sbx rm --all' terminates the sandboxes of an account; when the daemon has ended after that, nothing of it runs and \
    its data directory can be deleted; 'Remove' in docs/operations.md has all steps";
const IMAGE_REMOVAL: &str = "'sandboxd image remove NAME' removes an image and, while no daemon runs, the layers that nothing else uses; a running daemon removes \
     images that accounts have named by itself, the least used ones first, above images.max_bytes";

/// Says how a command can be done without that does not exist.
fn explain(error: &mut clap::Error) {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return };
    if !REMOVALS.contains(&name.as_str()) {
        return;
    }
    // The usage is that of the command above the one that does not exist.
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let is_of_images = usage.is_some_and(|usage| usage.contains("sandboxd image"));
    let tip = if is_of_images { IMAGE_REMOVAL } else { REMOVAL };
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

fn without_empty_variables(command: clap::Command) -> clap::Command {
    let unset = |arg: clap::Arg| if has_empty_variable(&arg) { arg.env(None::<&'static str>) } else { arg };
    command.mut_args(unset).mut_subcommands(without_empty_variables)
}

fn has_empty_variable(arg: &clap::Arg) -> bool {
    let value = arg.get_env().and_then(std::env::var_os);
    let has_meaning = arg.get_long().is_some_and(|long| OFF_IF_EMPTY.contains(&long));
    value.is_some_and(|value| value.is_empty()) && !has_meaning
}

/// Flags of every command. They override the environment, which overrides the file.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Read this configuration file [default: /etc/sandboxd/config.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE", env = "SANDBOXD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Store disks, images and records in this directory [default: /var/lib/sandboxd]
    #[arg(long, global = true, value_name = "DIR", env = "SANDBOXD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Store sockets and the state of running sandboxes in this directory [default: /run/sandboxd]
    #[arg(long, global = true, value_name = "DIR", env = "SANDBOXD_RUN_DIR")]
    pub run_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve sandboxes over HTTPS, in the foreground
    Serve(ServeArguments),
    /// Create, list and revoke API keys; works while the daemon runs
    #[command(subcommand)]
    Key(KeyCommand),
    /// List the accounts with what they have on this host; works while the daemon runs
    Accounts(AccountsArguments),
    /// List the sandboxes of all accounts, or find one by its id; works while the daemon runs
    Sandboxes(SandboxesArguments),
    /// Check the requirements of this host, and print how to meet those that are missing
    Doctor,
    /// Run one command in a new sandbox without the daemon, then remove the sandbox
    Run(RunArguments),
    /// Explain which hosts a sandbox may reach
    #[command(subcommand)]
    Egress(EgressCommand),
    /// List, pull, import and remove images
    #[command(subcommand)]
    Image(ImageCommand),
    /// Print the OpenAPI document of the API
    #[command(hide = true)]
    Openapi,
    /// Check the configuration, or print all its keys
    #[command(subcommand)]
    Config(ConfigCommand),
}

// A doc comment would be the help of the commands that have these flags.
#[derive(Debug, Default, Args)]
pub struct Addresses {
    /// Listen for the API on this address and port [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDR", env = "SANDBOXD_LISTEN")]
    pub listen: Option<String>,
    /// Redirect plain HTTP on this address and port to HTTPS; empty turns it off [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "SANDBOXD_REDIRECT_LISTEN")]
    pub redirect_listen: Option<String>,
    /// Serve metrics on this address and port; empty turns them off [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDR", env = "SANDBOXD_METRICS_LISTEN")]
    pub metrics_listen: Option<String>,
}

#[derive(Debug, Default, Args)]
pub struct ServeArguments {
    #[command(flatten)]
    pub addresses: Addresses,
    /// Pull missing images of the catalogue: ubuntu:24.04 before serving, the others while serving
    #[arg(long, alias = "fetch-images")]
    pub pull_images: bool,
    /// Allow the local account to name images of registries, such as docker.io/library/*; repeatable
    #[arg(long, value_name = "PATTERN", value_parser = ImagePattern::parse)]
    pub allow_images: Vec<ImagePattern>,
    /// Print the local key and an example command at every start, not only the first
    #[arg(long)]
    pub show_key: bool,
    /// Serve the API of E2B as well, as `enabled` in `[e2b]` does
    #[arg(long)]
    pub e2b: bool,
    /// Lift all rate limits, for a machine that nobody else uses
    #[arg(long)]
    pub no_rate_limits: bool,
    /// Delete the sandboxes and snapshots of a data directory without a database; otherwise such a start fails
    #[arg(long)]
    pub discard_orphans: bool,
}

#[derive(Debug, Args)]
pub struct AccountsArguments {
    /// Print only the names of the accounts that have sandboxes or snapshots, one a line
    #[arg(long, short)]
    pub quiet: bool,
    /// Print JSON, with all quotas
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SandboxesArguments {
    /// Id of a sandbox, also of a terminated one, or a name [default: all that are not terminated]
    #[arg(value_name = "SANDBOX")]
    pub sandbox: Option<String>,
    /// List the sandboxes of this account only
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The form in which a key is printed. Both forms are the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyFormat {
    Native,
    E2b,
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it; it cannot be shown again
    // The generated text has flags that were given in the environment, as if they were required.
    #[command(override_usage = "sandboxd key create --account <NAME> --scopes <SCOPES> [OPTIONS]")]
    Create {
        /// Account whose sandboxes the key can use; a new name creates the account
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Scopes of the key: read, execute, write, admin, separated by commas
        #[arg(long, value_name = "SCOPES")]
        scopes: Scopes,
        /// Add a note, such as who uses the key
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
        /// End the key after this time: 90d, 2w, 12h, 30m [default: never]
        #[arg(long, value_name = "TIME")]
        expires: Option<KeyLifetime>,
        /// Limit the key to N requests of each kind per minute, not at all, or as its account [default: account]
        #[arg(
            long,
            value_name = "account|none|N",
            default_value_t,
            hide_default_value = true,
            allow_negative_numbers = true
        )]
        limits: KeyLimits,
        /// Print the key in the form of this service, or in the one that clients of E2B accept
        #[arg(long, value_name = "FORMAT", default_value = "native")]
        format: KeyFormat,
    },
    /// List the keys, without their secrets: valid ones, and those that ended in the last 7 days
    List {
        /// List all keys, however long ago they were revoked or expired
        #[arg(long)]
        all: bool,
        /// Print all keys as JSON
        #[arg(long)]
        json: bool,
        /// List the keys of this account only
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
    },
    /// Revoke a key, or all keys of an account; a running daemon refuses them within a second
    // As for 'create'.
    #[command(override_usage = "sandboxd key revoke <ID>\n       sandboxd key revoke --account <NAME>")]
    Revoke {
        /// Id of the key, as shown by 'sandboxd key list', or the key itself
        #[arg(required_unless_present = "account")]
        id: Option<String>,
        /// Revoke all keys of this account
        #[arg(long, value_name = "NAME", conflicts_with = "id")]
        account: Option<String>,
    },
    /// Name the command that ends a key, because keys are not deleted
    #[command(hide = true, alias = "remove")]
    Delete { id: Option<String> },
}

#[derive(Debug, Subcommand)]
pub enum EgressCommand {
    /// Explain whether a sandbox may reach a host; exit with 0 if it may, 1 if not, and 2 if there is no such sandbox
    Check(EgressCheckArguments),
}

#[derive(Debug, Args)]
pub struct EgressCheckArguments {
    /// Id of the sandbox, or its name
    #[arg(value_name = "SANDBOX")]
    pub sandbox: String,
    /// Account of the sandbox, if several accounts have one with this name
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Name or address, with a port unless it is 443: example.com, example.com:8080
    #[arg(value_name = "HOST[:PORT]")]
    pub target: Target,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the errors of the configuration; exit with 0 if there is none, and 1 otherwise
    Check(Addresses),
    /// Print every key with its type, default and meaning
    Reference,
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// Name of an image in the catalogue
    pub image: String,
    /// Command to run: a bash command line, or a program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Set the number of vCPUs: 2, 4 or 8
    #[arg(long, value_name = "N")]
    pub cpu: Option<i64>,
    /// Set the memory in MB: 2048 to 16384
    #[arg(long, value_name = "MB")]
    pub memory: Option<i64>,
    /// Set the disk size in MB: 5120 to 51200
    #[arg(long, value_name = "MB")]
    pub disk: Option<i64>,
    /// Set an environment variable; repeatable
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Set the working directory of the command
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Isolate the sandbox by this: container, gvisor, or auto for the configured choice
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    pub isolation: IsolationChoice,
    /// Pass standard input to the command; all of it is read before the command starts
    #[arg(long, short = 'i')]
    pub stdin: bool,
    /// Kill the command after this many seconds [default: 86400]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// List the images on this host, and those of the catalogue that are not
    List,
    /// Pull images, even if they are already on this host
    Pull {
        /// Names in the catalogue, or references of images that accounts may name
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Allow accounts to name images of registries; a running daemon obeys at once
    Allow {
        /// Images to allow: docker.io/library/*, ghcr.io/acme/**, python:3.*
        #[arg(value_parser = ImagePattern::parse)]
        pattern: ImagePattern,
        /// Allow them for this account only [default: for all accounts]
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
    },
    /// Undo an 'allow' of the same pattern
    Disallow {
        /// Pattern, as shown by 'sandboxd image allowed'
        #[arg(value_parser = ImagePattern::parse)]
        pattern: ImagePattern,
        /// Undo the 'allow' for this account
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
    },
    /// List the patterns of images that accounts may name
    Allowed,
    /// Store an image from a source under any name, also one outside the catalogue
    Import {
        /// Name of the new image
        name: String,
        /// Source of the image: oci-layout:DIR, rootfs:TAR, rootfs:DIR, debian:SUITE+PACKAGE, or REGISTRY/NAME:TAG
        source: String,
    },
    /// Remove an image and, while no daemon runs, the layers that nothing else uses
    Remove {
        /// Name of the image
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use api::bounds::{CPU, DISK_MB, MEMORY_MB};

    use super::*;

    /// Users look for a command such as `clean`, which there is not.
    #[test]
    fn the_help_says_how_everything_is_removed() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("the section 'Remove' of docs/operations.md"), "{help}");
    }

    #[test]
    fn the_help_of_run_has_the_bounds_of_the_api() {
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("run").unwrap().render_long_help().to_string();
        let [least, middle, most] = CPU;
        for bounds in [
            format!("{least}, {middle} or {most}"),
            format!("{} to {}", MEMORY_MB.min, MEMORY_MB.max),
            format!("{} to {}", DISK_MB.min, DISK_MB.max),
        ] {
            assert!(help.contains(&bounds), "{bounds}: {help}");
        }
    }

    #[test]
    fn commands_that_would_remove_the_service_say_how_it_is_removed() {
        for (name, has_tip) in [("uninstall", true), ("cleanup", true), ("clean", true), ("wash", false)] {
            let mut error = Cli::try_parse_from(["sandboxd", name]).unwrap_err();
            explain(&mut error);
            let text = error.to_string();
            assert_eq!(text.contains("tip: 'sbx rm --all'"), has_tip, "{text}");
        }
    }

    #[test]
    fn a_prune_of_images_does_not_remove_the_service() {
        let mut error = Cli::try_parse_from(["sandboxd", "image", "prune"]).unwrap_err();
        explain(&mut error);
        let text = error.to_string();
        assert!(text.contains("'sandboxd image remove NAME'") && !text.contains("sbx rm"), "{text}");
    }

    #[test]
    fn several_images_are_pulled() {
        assert!(Cli::try_parse_from(["sandboxd", "image", "pull", "ubuntu:24.04", "node:22"]).is_ok());
        assert!(Cli::try_parse_from(["sandboxd", "image", "pull"]).is_err());
    }

    #[test]
    fn a_revoke_names_a_key_or_an_account() {
        let revoke = |words: &[&str]| Cli::try_parse_from([&["sandboxd", "key", "revoke"], words].concat());
        assert!(revoke(&["key_1"]).is_ok() && revoke(&["--account", "a"]).is_ok());
        assert!(revoke(&[]).is_err() && revoke(&["key_1", "--account", "a"]).is_err());
        let error =
            Cli::try_parse_from(["sandboxd", "--config", "/x", "key", "revoke"]).unwrap_err().to_string();
        assert!(error.contains("key revoke --account <NAME>") && !error.contains("--config"), "{error}");
    }

    #[test]
    fn the_usage_of_a_new_key_has_only_its_own_flags() {
        let error = Cli::try_parse_from(["sandboxd", "--config", "/x", "key", "create", "--account", "a"]);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("--scopes <SCOPES>") && !text.contains("--config"), "{text}");
        let words = ["sandboxd", "key", "create", "--account", "a", "--scopes", "read", "--limits", "-1"];
        let text = Cli::try_parse_from(words).unwrap_err().to_string();
        assert!(text.contains("'none', 'account', or a number of requests per minute"), "{text}");
        let mut cli = Cli::command();
        let key = cli.find_subcommand_mut("key").unwrap();
        let help = key.find_subcommand_mut("create").unwrap().render_long_help().to_string();
        for limits in ["account|none|N", "[default: account]", "2w"] {
            assert!(help.contains(limits), "{help}");
        }
    }
}
