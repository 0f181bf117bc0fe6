//! Many concurrent connections through the proxy, idle after a first exchange: the daemon's memory with plain HTTP and with TLS.

use anyhow::{Result, ensure};
use e2e::internet;
use serde_json::json;

use super::machine::Machine;
use crate::host;
use crate::report::{Figure, OURS, Row};

const CONNECTIONS: usize = 5_000;
/// Sandboxes that share the connections, because of the limit per sandbox.
const SANDBOXES: usize = 10;
/// Time for one sandbox to open its share.
const TIMEOUT_MINUTES: usize = 3;
/// Waits up to half a minute; prints the number of open connections, or an error.
const WAIT: &str = "for n in $(seq 300); do [ -s /held ] || [ -s /held.log ] && break; sleep 0.1; done; cat /held /held.log 2>/dev/null || true";

pub async fn run(machine: &Machine) -> Result<Vec<Row>> {
    let plain = hold(machine, OURS, 80, "").await?;
    let context = "import ssl; c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE";
    let wrap = format!("s = c.wrap_socket(s, server_hostname=\"{}\")", machine.site.name);
    let tls = hold(machine, "tls", 443, &format!("{context}\n    {wrap}")).await?;
    Ok(vec![plain, tls])
}

/// Opens connections and measures the daemon. `wrap` is Python code that the client runs on a new socket.
async fn hold(machine: &Machine, subject: &'static str, port: u16, wrap: &str) -> Result<Row> {
    let each = CONNECTIONS / SANDBOXES;
    let deny = json!({ "default": "deny", "allow": [machine.site.name] });
    let program = format!(
        r#"cat > /hold.py <<'END'
import socket, time
held = []
for n in range({each}):
    s = socket.create_connection(("{0}", {port}), 20)
    {wrap}
    s.send(b"GET /hello HTTP/1.1\r\nHost: {0}\r\n\r\n")
    assert b"hello" in s.recv(999)
    held.append(s)
open("/held", "w").write(str(len(held)))
time.sleep(600)
END
setsid python3 /hold.py >/held.log 2>&1 &"#,
        machine.site.name
    );
    let pid = machine.service.pid().unwrap_or_default().to_string();
    let before = host::resident_kb(&pid)?;
    let mut ids = Vec::new();
    let mut held = 0;
    for _ in 0..SANDBOXES {
        let id = machine.create(internet::image::IMAGE, &deny).await?;
        machine.output(Some(&id), &program).await?;
        let mut printed = String::new();
        // This can take longer than the timeout of one command.
        for _ in 0..TIMEOUT_MINUTES * 2 {
            printed = machine.output(Some(&id), WAIT).await?;
            if !printed.is_empty() {
                break;
            }
        }
        held += printed.trim().parse::<usize>().map_err(|_| anyhow::anyhow!("{printed}"))?;
        ids.push(id);
    }
    let resident = host::resident_kb(&pid)?;
    for id in ids {
        machine.destroy(&id).await?;
    }
    ensure!(held == CONNECTIONS, "{held} connections instead of {CONNECTIONS}");
    let row = Row::new("proxy-connections", subject, Figure::Megabytes(megabytes(resident)), held);
    Ok(row.note(format!("resident memory of the daemon; {:.1} MB before", megabytes(before))))
}

#[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
fn megabytes(kb: u64) -> f64 {
    kb as f64 / 1024.0
}
