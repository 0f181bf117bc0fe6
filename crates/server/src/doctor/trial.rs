//! A trial of what cannot be seen: a disk, an id map and an overlay, as for a sandbox.

use driver_host::try_file_systems;

use super::Finding;
use crate::config::Config;

pub fn file_systems(config: &Config) -> Finding {
    const WHAT: &str = "file systems";
    let dir = config.data_dir.join(format!("doctor-{}", std::process::id()));
    let tried = std::fs::create_dir_all(&dir)
        .map_err(|error| error.to_string())
        .and_then(|()| try_file_systems(&dir, config.runtime.uid_base).map_err(|error| error.to_string()));
    // A directory that cannot be removed is reported, and needed by nothing.
    let cleared = std::fs::remove_dir_all(&dir);
    match (tried, cleared) {
        (Ok(()), Ok(())) => Finding::good(WHAT, "disk, id-mapped layer and overlay work"),
        (Ok(()), Err(error)) => Finding::fair(
            WHAT,
            format!("work, but {} cannot be removed: {error}", dir.display()),
            "remove the directory",
        ),
        (Err(error), _) => Finding::bad(
            WHAT,
            error,
            "check that the kernel has ext4, overlay and id-mapped mounts, and that the file system of data_dir allows them",
        ),
    }
}
