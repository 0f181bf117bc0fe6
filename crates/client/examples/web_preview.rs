//! A preview of a web application in a sandbox: a port is exposed at a URL, and everybody with the link sees each change on reload. The
//! link contains a token that expires; no key is required.
//!
//! `cargo run -p sandboxd-client --example web_preview`, with a service as `Client::from_env` finds it. Each line on standard input
//! continues.

use std::io::Write;
use std::time::Duration;

use sandboxd_client::{Client, Sandbox};

const PORT: u16 = 8080;

/// The application: one page, read for each request. It uses Perl, which every Debian image has.
const APP: &str = r#"
use strict;
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 8080, Listen => 16, ReuseAddr => 1) or die $!;
while (my $browser = $listener->accept) {
    while (my $line = <$browser>) { last if $line =~ /^\r?\n$/ }
    open my $file, '<', 'index.html' or die $!;
    my $page = do { local $/; <$file> };
    print $browser "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
    print $browser "Content-Length: ", length $page, "\r\n\r\n$page";
    close $browser;
}
"#;

async fn show(sandbox: &Sandbox, page: &str) -> sandboxd_client::Result<()> {
    // Writes are atomic, so no viewer sees half a page.
    sandbox.files().write("index.html", format!("<h1>{page}</h1>\n")).await?;
    Ok(())
}

fn say(line: &str) -> std::io::Result<()> {
    println!("{line}");
    std::io::stdout().flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::from_env()?;
    let image = std::env::var("IMAGE").unwrap_or_else(|_| "ubuntu:24.04".to_owned());
    let sandbox = client.create(image).await?.terminate_on_drop();
    sandbox.files().write("app.pl", APP).await?;
    show(&sandbox, "first draft").await?;
    let app = sandbox.start("perl app.pl").await?;
    sandbox.execute(format!("until curl -sf http://127.0.0.1:{PORT}/; do sleep 0.05; done")).await?;

    sandbox.expose(PORT).await?;
    let token = sandbox.port_token(PORT).expires_in(Duration::from_secs(600)).await?;
    say(&token.url)?;
    show(&sandbox, "second draft").await?;
    say("changed: look again")?;

    app.cancel().await?;
    sandbox.terminate().await?;
    Ok(())
}
