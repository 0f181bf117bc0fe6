//! The `/etc/resolv.conf` of sandboxes.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;

use crate::paths::resolv_conf;
use crate::settings::Settings;

/// The resolver is on this host and answers quickly, also with errors: longer timeouts have no use.
const OPTIONS: &str = "options timeout:3 attempts:2 edns0";

/// Writes the file, atomically: sandboxes of an earlier daemon may be reading it.
pub fn write(settings: &Settings) -> io::Result<()> {
    let Some(resolver) = settings.resolver else { return Ok(()) };
    let text = format!("nameserver {resolver}\n{OPTIONS}\n");
    let path = resolv_conf(settings);
    base::replace_file(&path, text.as_bytes(), 0o644)?;
    // The umask may have taken permissions away.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))
}
