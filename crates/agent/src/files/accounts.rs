//! Creates a user where the image lacks it: rows in `/etc/passwd`, `/etc/group` and `/etc/shadow`, a home directory with the files
//! of `/etc/skel`, and a `sudoers` file. Repeating it after a failure completes it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use guest_proto::FileErrorKind;

use super::failure::FileFailure;
use crate::users::{self, Names, User};

const HOMES: &str = "/home";
const SHADOW: &str = "/etc/shadow";
const SUDOERS: &str = "/etc/sudoers.d";
const SKELETON: &str = "/etc/skel";
/// Most files that a new home gets.
const MAX_SKELETON: usize = 64;
const MAX_SKELETON_BYTES: u64 = 1024 * 1024;

pub fn create(name: &str, uid: u32) -> Result<(), FileFailure> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    if !name.chars().all(is_plain) || name.starts_with('-') {
        return Err(FileFailure::new(
            FileErrorKind::Invalid,
            "the name of a user has other characters than a-z, 0-9, _ and -",
        ));
    }
    let failed = |error: io::Error| {
        FileFailure::new(FileErrorKind::Failed, format!("cannot create the user '{name}': {error}"))
    };
    if User::find(name).is_err() {
        add_rows(name, uid).map_err(failed)?;
    }
    if let Ok(user) = User::find(name) {
        make_home(&user).map_err(failed)?;
    }
    permit_sudo(name).map_err(failed)
}

fn add_rows(name: &str, uid: u32) -> io::Result<()> {
    let names = Names::read();
    // An image may have another user with this number.
    let free = |number: &u32| {
        names.user(*number) == number.to_string() && names.group(*number) == number.to_string()
    };
    let id = (uid..u32::from(u16::MAX)).find(free).unwrap_or(uid);
    append(users::GROUP, &format!("{name}:x:{id}:"), 0o644)?;
    if Path::new(SHADOW).exists() {
        // Without a password.
        append(SHADOW, &format!("{name}:*:19000:0:99999:7:::"), 0o640)?;
    }
    append(users::PASSWD, &format!("{name}:x:{id}:{id}::{HOMES}/{name}:/bin/bash"), 0o644)
}

fn append(path: &str, row: &str, mode: u32) -> io::Result<()> {
    let content = users::read(path);
    let between = if content.is_empty() || content.ends_with(b"\n") { "" } else { "\n" };
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file = OpenOptions::new().append(true).create(true).mode(mode).custom_flags(flags).open(path)?;
    file.write_all(format!("{between}{row}\n").as_bytes())
}

fn make_home(user: &User) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let home = Path::new(std::ffi::OsStr::from_bytes(&user.home));
    if home.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(home)?;
    fs::set_permissions(home, fs::Permissions::from_mode(0o755))?;
    chown(home, Some(user.uid), Some(user.gid))?;
    // An image without skeleton is no failure.
    for entry in fs::read_dir(SKELETON).into_iter().flatten().flatten().take(MAX_SKELETON) {
        let is_small =
            entry.metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_SKELETON_BYTES);
        if is_small {
            let to = home.join(entry.file_name());
            fs::copy(entry.path(), &to)?;
            chown(&to, Some(user.uid), Some(user.gid))?;
        }
    }
    Ok(())
}

fn permit_sudo(name: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(SUDOERS)?;
    let path = Path::new(SUDOERS).join(name);
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o440).open(path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        file => file?.write_all(format!("{name} ALL=(ALL:ALL) NOPASSWD: ALL\n").as_bytes()),
    }
}
