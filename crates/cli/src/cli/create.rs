//! Arguments of `sbx create`, and the options of a new sandbox that it shares with `sbx run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sandboxd_client::IsolationChoice;

use super::network::{NetworkChoice, network_choice, target};
use super::running::lifetime;
use super::{isolation, megabytes, pair, time, vcpus};

const INVALID_PORT: &str = "expected a port of the sandbox, 1 to 65535";

/// Options of a new sandbox.
#[derive(Debug, Default, Args)]
pub struct SandboxOptions {
    /// Set the number of vCPUs: 2, 4 or 8
    #[arg(long, alias = "cpus", value_name = "N", value_parser = vcpus)]
    pub cpu: Option<u32>,
    /// Set the memory: 2g to 16g
    #[arg(long, value_name = "SIZE", value_parser = megabytes)]
    pub memory: Option<u32>,
    /// Set the disk size: 5g to 50g; a larger one of the snapshot or template stays [default: 10g]
    #[arg(long, value_name = "SIZE", value_parser = megabytes)]
    pub disk: Option<u32>,
    /// Set an environment variable, or pass yours with NAME alone; repeatable
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Set the environment variables in this file, one NAME=VALUE or NAME on a line; -e overrides them; repeatable
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Set the working directory of commands
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Name the sandbox; commands accept the name in place of the id
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Add a tag; repeatable
    #[arg(long, short, alias = "label", short_alias = 'l', value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// Allow only this domain, such as example.com or *.example.org; repeatable
    #[arg(long, value_name = "DOMAIN", value_parser = target)]
    pub allow: Vec<String>,
    /// Set the network: open, none, or the only domains to allow, separated by commas [default: open]
    #[arg(long, alias = "net", value_name = "NETWORK", value_parser = network_choice, conflicts_with = "allow")]
    pub network: Option<NetworkChoice>,
    /// Deny all outgoing connections, as with --network none
    #[arg(long, conflicts_with_all = ["allow", "network"])]
    pub offline: bool,
    /// Give an HTTP port of the sandbox a URL, private by default, which is printed on standard error; repeatable
    #[arg(long, short, value_name = "PORT", value_parser = published_port)]
    pub publish: Vec<u16>,
    /// Set what separates the sandbox from the host; auto leaves the choice to the service [default: auto]
    #[arg(long, value_name = "BACKEND", value_parser = isolation())]
    pub isolation: Option<IsolationChoice>,
    /// Start without the processes of the snapshot or template
    #[arg(long)]
    pub cold: bool,
    /// Wait at most this long for capacity, for rate limits and for the image
    ///
    /// By default sbx waits 2 minutes for capacity and rate limits. While the service pulls the image, sbx waits until the pull ends
    /// if standard error is a terminal, and 10 minutes otherwise or with --json. Examples: 30s, 5m, 0 for not at all. The limit is for
    /// further attempts: one that has begun is not given up, and the service may pull and unpack the image for some seconds during it.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait: Option<Duration>,
}

/// The arguments of `sbx create`.
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Image, template or snapshot to create the sandbox from
    pub image: String,
    #[command(flatten)]
    pub new: SandboxOptions,
    /// Terminate the sandbox after this running time, such as 90m; at most 24h, which is also 0 [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub timeout: Option<Duration>,
    /// Pause the sandbox at its timeout instead of terminating it
    #[arg(long)]
    pub pause_on_timeout: bool,
    /// Resume the sandbox by 'sbx resume' only, not by commands, files or ports
    #[arg(long)]
    pub no_auto_resume: bool,
    /// Pause the sandbox after this time without activity; 0 for never [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub idle: Option<Duration>,
}

/// Parses a port of a sandbox.
pub fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(INVALID_PORT.to_owned()),
        Ok(port) => Ok(port),
    }
}

/// Parses the port of `-p`. Docker's form with a port of the host is refused, because nothing is forwarded.
fn published_port(text: &str) -> Result<u16, String> {
    let (host, port_text) = text.rsplit_once(':').map_or((None, text), |(host, port)| (Some(host), port));
    if port_text.ends_with("/udp") {
        return Err(format!("{INVALID_PORT}; only HTTP is passed on, so UDP is not supported"));
    }
    if let Some((first, last)) = port_text.split_once('-')
        && let (Ok(first), Ok(last)) = (port(first), port(last))
    {
        return Err(format!("{INVALID_PORT}; write -p for each port of a range: -p {first} … -p {last}"));
    }
    match port(port_text.strip_suffix("/tcp").unwrap_or(port_text)) {
        Err(error) => Err(error),
        Ok(port) if host.is_some() => Err(format!(
            "no port of the host is forwarded: the service gives each port a URL of its own; write -p {port}"
        )),
        Ok(port) => Ok(port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_no_port_of_the_host() {
        assert_eq!((published_port("80"), published_port("8080/tcp")), (Ok(80), Ok(8080)));
        for text in ["8080:80", "127.0.0.1:8080:80/tcp", ":80"] {
            assert!(published_port(text).unwrap_err().contains("write -p 80"), "{text}");
        }
        for text in ["", "0", "65536", "80/udp", "80-90", "http"] {
            assert!(published_port(text).unwrap_err().contains("1 to 65535"), "{text}");
        }
        for (text, part) in [("80/udp", "UDP is not supported"), ("8000-8002", "-p 8000 … -p 8002")] {
            assert!(published_port(text).unwrap_err().ends_with(part), "{text}");
        }
        assert!(!published_port("a-b").unwrap_err().contains("range"));
    }
}
