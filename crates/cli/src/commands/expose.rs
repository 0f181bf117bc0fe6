//! `sbx expose`: exposes ports of a sandbox.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, PortVisibility, Sandbox};

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;
use crate::cli::{ExposeArguments, SandboxOptions};
use crate::output::{self, OutputFormat};

/// `certificate`: the file that sbx trusts, if there is one.
pub async fn expose(
    client: &Client,
    format: OutputFormat,
    certificate: Option<&Path>,
    arguments: &ExposeArguments,
) -> Result<ExitCode> {
    let sandbox = find_sandbox(client, &arguments.id).await?;
    for_each(&arguments.ports, BatchForm::of(format, arguments.ports.len()), async |port: &u16| {
        let mut expose = sandbox.expose(*port);
        if arguments.public {
            expose = expose.public();
        }
        if arguments.no_resume {
            expose = expose.auto_resume(false);
        }
        let port = expose.await?;
        if format == OutputFormat::Plain && port.visibility == PortVisibility::Private {
            output::note(&private_text(&arguments.id, port.port, certificate));
        }
        ItemResult::new(&port.url, &port).map(Some)
    })
    .await
}

/// Exposes the ports of `-p` of a new sandbox, and prints their URLs on standard error, because standard output has the id or the output of
/// the command.
pub async fn publish(sandbox: &Sandbox, new: &SandboxOptions) -> Result<()> {
    let name = new.name.as_deref().unwrap_or(sandbox.id().as_str());
    for port in &new.publish {
        let url = sandbox.expose(*port).await?.url;
        output::note(&format!(
            "sbx: port {port} has the private URL {url}; 'sbx open {name} {port}' prints one with a token, and 'sbx expose --public {name} {port}' \
             opens it to anyone"
        ));
    }
    Ok(())
}

/// How to reach a private port, for a person who would otherwise get 401 in a browser.
fn private_text(id: &str, port: u16, certificate: Option<&Path>) -> String {
    let file = certificate.map_or_else(|| "FILE".to_owned(), |file| file.display().to_string());
    format!(
        "sbx: port {port} is private: 'sbx open {id} {port}' prints a URL with a token, and 'sbx expose --public {id} {port}' opens the port \
         to anyone who has its URL; curl trusts the certificate of the service with --cacert {file}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_port_is_explained_with_the_certificate() {
        let text = private_text("web", 8080, Some(Path::new("/a.pem")));
        for part in ["'sbx open web 8080'", "'sbx expose --public web 8080'", "--cacert /a.pem"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(private_text("web", 1, None).ends_with("--cacert FILE"));
    }
}
