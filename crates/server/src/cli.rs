//! The command line.

use std::path::PathBuf;

use api::SandboxId;
use clap::{Args, Parser, Subcommand};
use rules::Scopes;

use crate::explain::Target;

/// Isolated Linux sandboxes on this machine.
#[derive(Debug, Parser)]
#[command(name = "sandboxd", version)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Flags that every command knows. They go over the environment, which goes over the file.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// The configuration file [default: /etc/sandboxd/config.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE", env = "SANDBOXD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where disks, images and records are kept [default: /var/lib/sandboxd]
    #[arg(long, global = true, value_name = "DIR", env = "SANDBOXD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where sockets and the state of running sandboxes are [default: /run/sandboxd]
    #[arg(long, global = true, value_name = "DIR", env = "SANDBOXD_RUN_DIR")]
    pub run_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Serve sandboxes over HTTPS, in the foreground
    Serve(ServeArguments),
    /// Create, list and revoke API keys, also while a server runs
    #[command(subcommand)]
    Key(KeyVerb),
    /// Say what this host has and lacks, and how to mend it
    Doctor,
    /// Run one command in a sandbox of its own, without a server, and remove it
    Run(RunArguments),
    /// Explain what a sandbox may reach
    #[command(subcommand)]
    Egress(EgressVerb),
    /// List, fetch and remove images
    #[command(subcommand)]
    Image(ImageVerb),
    /// Print the interface as an OpenAPI document
    #[command(hide = true)]
    Openapi,
    /// Print what can be configured
    #[command(subcommand, hide = true)]
    Config(ConfigVerb),
}

#[derive(Debug, Default, Args)]
pub struct ServeArguments {
    /// Address and port of the service [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDR", env = "SANDBOXD_LISTEN")]
    pub listen: Option<String>,
    /// Address and port of the redirect to HTTPS; empty for none [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "SANDBOXD_REDIRECT_LISTEN")]
    pub redirect_listen: Option<String>,
    /// Address and port of the metrics; empty for none [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDR", env = "SANDBOXD_METRICS_LISTEN")]
    pub metrics_listen: Option<String>,
    /// Before saying ready, fetch the default images that are not on this host
    #[arg(long)]
    pub fetch_images: bool,
    /// Print the local key and a command to paste, not only at the first start
    #[arg(long)]
    pub show_key: bool,
}

#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Make a key and print it, alone; it cannot be shown again
    Create {
        /// Whose sandboxes the key sees; an account is there as soon as it has a key
        #[arg(long, value_name = "NAME")]
        account: String,
        /// What the key may do: read, execute, write, admin, separated by commas
        #[arg(long, value_name = "SCOPES")]
        scopes: Scopes,
        /// A note for people, such as who uses the key
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
    },
    /// Every key there is or was, without its secret
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a key invalid, within a second also on a server that runs
    Revoke {
        /// The key's identifier, as 'key list' shows it
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum EgressVerb {
    /// Say whether a sandbox may reach a host, and why. Exits with 0 if it may and with 1 if not
    Check(EgressCheckArguments),
}

#[derive(Debug, Args)]
pub struct EgressCheckArguments {
    /// Id of the sandbox
    pub id: SandboxId,
    /// A name or an address, and a port if it is not 443: example.com, example.com:8080
    #[arg(value_name = "HOST[:PORT]")]
    pub target: Target,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Every key with its type, default and meaning
    Reference,
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// Name of an image in the catalogue
    pub image: String,
    /// One argument is a bash command line; several are a program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// vCPUs: 2, 4 or 8
    #[arg(long, value_name = "N")]
    pub cpu: Option<i64>,
    /// Memory in MB, 2048 to 16384
    #[arg(long, value_name = "MB")]
    pub memory: Option<i64>,
    /// Disk in MB, 5120 to 51200
    #[arg(long, value_name = "MB")]
    pub disk: Option<i64>,
    /// An environment variable, as NAME=VALUE; may be repeated
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Working directory
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Feed our standard input, read to its end first, to the command
    #[arg(long, short = 'i')]
    pub stdin: bool,
    /// Kill the command after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum ImageVerb {
    /// What is in the catalogue, and what of it is on this host
    List,
    /// Fetch an image, also if it is here already
    Pull {
        /// Name in the catalogue
        name: String,
    },
    /// Make an image of a source: oci-layout:DIR, rootfs:TAR, rootfs:DIR, debian:SUITE+PACKAGE, or a registry's reference
    Import {
        /// Name it gets
        name: String,
        source: String,
    },
    /// Remove an image; layers that nothing else uses go with it
    Remove {
        /// Name in the catalogue
        name: String,
    },
}
