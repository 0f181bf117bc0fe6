//! Whether this host passes packets on. The one setting of the host that is changed, and only where it is off.

use std::fs;
use std::io;

const SETTING: &str = "/proc/sys/net/ipv4/ip_forward";

pub fn is_enabled() -> io::Result<bool> {
    Ok(fs::read_to_string(SETTING)?.trim() == "1")
}

pub fn enable() -> io::Result<()> {
    if is_enabled()? {
        return Ok(());
    }
    fs::write(SETTING, "1")?;
    tracing::info!("net.ipv4.ip_forward was off and is on now: sandboxes reach nothing without");
    Ok(())
}
