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
    let path = resolv_conf(settings);
    let text = format!("nameserver {resolver}\n{OPTIONS}\n");
    if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
    fs::rename(&new, &path)
}
