//! IPv4 forwarding of the host. This is the only setting of the host that the daemon changes, and only if it is off.

use std::fs;
use std::io;

const SETTING: &str = "/proc/sys/net/ipv4/ip_forward";

/// Whether the kernel forwards IPv4 packets.
pub fn is_enabled() -> io::Result<bool> {
    Ok(fs::read_to_string(SETTING)?.trim() == "1")
}

/// Lets the kernel forward IPv4 packets. The setting stays when the daemon ends.
pub fn enable() -> io::Result<()> {
    if is_enabled()? {
        return Ok(());
    }
    fs::write(SETTING, "1")?;
    tracing::info!("turned net.ipv4.ip_forward on: sandboxes need it");
    Ok(())
}
