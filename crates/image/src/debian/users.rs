//! The user of an official image that Debian does not have: programs made for the image name it, as `COPY --chown=node:node` does.

use std::io;
use std::path::Path;

use tar::{Builder, EntryType};

use super::{header, read_text};

/// Pseudo packages, and the user that each adds.
const USERS: [(&str, &str); 1] = [("user-node", "node")];
/// The number of the user and of its group in official images.
const ID: u64 = 1000;
/// The number of Debian's group `shadow`.
const SHADOW_GROUP: u64 = 42;
/// Where homes are.
const HOMES: &str = "home";
const PASSWD: &str = "etc/passwd";
const GROUP: &str = "etc/group";
const SHADOW: &str = "etc/shadow";

/// The user that a pseudo package adds. `None` for others.
pub(super) fn added_by(package: &str) -> Option<&'static str> {
    USERS.iter().find(|(known, _)| *known == package).map(|(_, user)| *user)
}

/// The files with the users of an image.
#[derive(Default)]
pub(super) struct AccountFiles {
    passwd: Option<String>,
    group: Option<String>,
    shadow: Option<String>,
}

impl AccountFiles {
    pub(super) fn read(tree: &Path) -> Self {
        let read = |path: &str| read_text(&tree.join(path));
        Self { passwd: read(PASSWD), group: read(GROUP), shadow: read(SHADOW) }
    }

    /// With the files of a lower layer where this one has none.
    pub(super) fn above(self, lower: Self) -> Self {
        Self {
            passwd: self.passwd.or(lower.passwd),
            group: self.group.or(lower.group),
            shadow: self.shadow.or(lower.shadow),
        }
    }

    /// Writes the files with one more user, and its home. The directory `etc` is that of the caller.
    pub(super) fn write_with(&self, user: &str, tar: &mut Builder<Vec<u8>>) -> io::Result<()> {
        if self.passwd.is_none() || self.group.is_none() {
            return Err(io::Error::other("the image has no readable lists of users and groups"));
        }
        for (path, content, row, mode, group) in [
            (PASSWD, &self.passwd, format!("{user}:x:{ID}:{ID}::/{HOMES}/{user}:/bin/bash"), 0o644, 0),
            (GROUP, &self.group, format!("{user}:x:{ID}:"), 0o644, 0),
            // Without a password. `sudo` and `su` refuse users that are not in this file.
            (SHADOW, &self.shadow, format!("{user}:!:19000:0:99999:7:::"), 0o640, SHADOW_GROUP),
        ] {
            let content = format!("{}{row}\n", content.as_deref().unwrap_or_default());
            let mut file = header(EntryType::Regular, mode);
            file.set_gid(group);
            file.set_size(content.len() as u64);
            tar.append_data(&mut file, path, content.as_bytes())?;
        }
        tar.append_data(&mut header(EntryType::Directory, 0o755), format!("{HOMES}/"), io::empty())?;
        let mut home = header(EntryType::Directory, 0o755);
        home.set_uid(ID);
        home.set_gid(ID);
        tar.append_data(&mut home, format!("{HOMES}/{user}/"), io::empty())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_user_is_added_to_the_files_of_the_layers_below() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join(PASSWD), "root:x:0:0:root:/root:/bin/bash\n").unwrap();
        std::fs::write(dir.path().join(GROUP), "root:x:0:\n").unwrap();
        let files = AccountFiles::default().above(AccountFiles::read(dir.path()));
        let mut tar = Builder::new(Vec::new());
        files.write_with(added_by("user-node").unwrap(), &mut tar).unwrap();
        let content = tar.into_inner().unwrap();
        let mut archive = tar::Archive::new(content.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let owner = (entry.header().uid().unwrap(), entry.header().gid().unwrap());
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push((path, owner, text));
        }
        let row = |path: &str, owner, text: &str| (path.to_owned(), owner, text.to_owned());
        assert_eq!(
            found,
            [
                row(
                    PASSWD,
                    (0, 0),
                    &format!("root:x:0:0:root:/root:/bin/bash\nnode:x:1000:1000::/{HOMES}/node:/bin/bash\n")
                ),
                row(GROUP, (0, 0), "root:x:0:\nnode:x:1000:\n"),
                row(SHADOW, (0, SHADOW_GROUP), "node:!:19000:0:99999:7:::\n"),
                row("home/", (0, 0), ""),
                row("home/node/", (ID, ID), ""),
            ]
        );
        assert_eq!(added_by("node22"), None);
    }
}
