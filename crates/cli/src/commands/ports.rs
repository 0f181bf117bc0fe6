//! `sbx ports`: lists the exposed ports of a sandbox.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Port, PortVisibility};

use super::named_sandbox::find_sandbox;
use crate::cli::ProbeArguments;
use crate::output::OutputFormat;
use crate::style::{Paint, Tone};
use crate::table::{plain, table};

/// Prints the exposed ports as a table.
pub async fn ports(client: &Client, format: OutputFormat, arguments: &ProbeArguments) -> Result<ExitCode> {
    let ports = find_sandbox(client, &arguments.id).await?.ports().await?;
    format.print(&ports, |paint| render(&ports, paint))
}

fn render(ports: &[Port], paint: Paint) -> String {
    let tone = |port: &Port| match port.visibility {
        PortVisibility::Private => Tone::Plain,
        PortVisibility::Public => Tone::Waiting,
    };
    let rows = ports.iter().map(|port| {
        [(port.port.to_string(), Tone::Bold), (port.visibility.to_string(), tone(port)), plain(&port.url)]
    });
    table(["PORT", "FOR", "URL"], rows, paint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_the_url() {
        let json = r#"{"port":8080,"url":"https://8080-sb-abcdefgh.example","exposedAt":"1970-01-01T00:00:00Z",
            "visibility":"public","autoResume":true}"#;
        let port: Port = serde_json::from_str(json).unwrap();
        assert_eq!(
            render(&[port], Paint::None),
            "PORT  FOR     URL\n8080  public  https://8080-sb-abcdefgh.example\n"
        );
    }
}
