//! `sbx expose`: exposes ports of a sandbox.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, PortVisibility, Sandbox};

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;
use crate::cli::{ExposeArguments, SandboxOptions};
use crate::output::{self, OutputFormat};

/// Ports of programs that do not speak HTTP.
const OTHER_PROTOCOLS: [(u16, &str); 10] = [
    (21, "FTP"),
    (22, "SSH"),
    (25, "SMTP"),
    (1433, "SQL Server"),
    (3306, "MySQL"),
    (5432, "PostgreSQL"),
    (5672, "AMQP"),
    (6379, "Redis"),
    (11211, "memcached"),
    (27017, "MongoDB"),
];

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
        if format == OutputFormat::Plain {
            if port.visibility == PortVisibility::Private {
                output::note(&private_text(&arguments.id, port.port, certificate));
            }
            other_protocol_text(&arguments.id, port.port).inspect(|text| output::note(text));
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
            "sbx: HTTP port {port} has the private URL {url}; 'sbx open {name} {port}' prints one with a token, and 'sbx expose --public {name} {port}' \
             opens it to anyone"
        ));
        other_protocol_text(name, *port).inspect(|text| output::note(text));
    }
    Ok(())
}

/// How to reach a port that usually does not speak HTTP.
fn other_protocol_text(id: &str, port: u16) -> Option<String> {
    let (_, protocol) = OTHER_PROTOCOLS.iter().find(|(known, _)| *known == port)?;
    Some(format!(
        "sbx: port {port} is usually that of {protocol}, which does not pass through the URL: \
         sbx exec -i {id} 'socat - TCP:localhost:{port}' connects a program of this machine to it, if socat is in the image"
    ))
}

/// How to reach a private port, for a person who would otherwise get 401 in a browser.
fn private_text(id: &str, port: u16, certificate: Option<&Path>) -> String {
    let file = certificate.map_or_else(|| "FILE".to_owned(), |file| file.display().to_string());
    format!(
        "sbx: the URL passes on HTTP only, and port {port} is private: 'sbx open {id} {port}' prints a URL with a token, and 'sbx expose --public {id} {port}' opens the port \
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
        assert!(text.contains("HTTP only"), "{text}");
        assert!(private_text("web", 1, None).ends_with("--cacert FILE"));
    }

    #[test]
    fn ports_of_other_protocols_have_another_way() {
        let text = other_protocol_text("web", 6379).unwrap();
        assert!(
            text.contains("Redis") && text.contains("sbx exec -i web 'socat - TCP:localhost:6379'"),
            "{text}"
        );
        assert_eq!(other_protocol_text("web", 8080), None);
    }
}
