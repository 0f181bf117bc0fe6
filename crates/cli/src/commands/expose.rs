//! `sbx expose`: exposes ports of a sandbox.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, PortVisibility};

use super::batch::{BatchForm, ItemResult, for_each};
use crate::cli::ExposeArguments;
use crate::output::{self, OutputFormat};

/// `certificate`: the file that sbx trusts, if there is one.
pub async fn expose(
    client: &Client,
    format: OutputFormat,
    certificate: Option<&Path>,
    arguments: &ExposeArguments,
) -> Result<ExitCode> {
    let sandbox = client.find(&arguments.id).await?;
    let is_told = format == OutputFormat::Plain && std::io::stderr().is_terminal();
    for_each(&arguments.ports, BatchForm::of(format, arguments.ports.len()), async |port: &u16| {
        let mut expose = sandbox.expose(*port);
        if arguments.public {
            expose = expose.public();
        }
        if arguments.no_resume {
            expose = expose.auto_resume(false);
        }
        let port = expose.await?;
        if is_told && port.visibility == PortVisibility::Private {
            output::note(&private_text(&arguments.id, port.port, certificate));
        }
        ItemResult::new(&port.url, &port).map(Some)
    })
    .await
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
