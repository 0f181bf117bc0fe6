//! The users of the sandbox: looks up names in `/etc/passwd` and `/etc/group`, without the image's C library. Called by
//! `spawn` and `file_op`.
//!
//! Root inside can make these files anything, so only regular files are read, and only a bounded part of them.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

pub const PASSWD: &str = "/etc/passwd";
pub const GROUP: &str = "/etc/group";
/// Most bytes that are read of each file.
const MAX_BYTES: usize = 1024 * 1024;
/// Most supplementary groups of a user.
const MAX_GROUPS: usize = 1024;
const ROOT: &[u8] = b"root";

/// A user of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
    /// Absolute.
    pub home: Vec<u8>,
}

/// What the sandbox does not have of a text `USER:GROUP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingAccount<'a> {
    User(&'a str),
    Group(&'a str),
}

impl<'a> MissingAccount<'a> {
    /// What is missing, in messages, and its name.
    pub fn described(self) -> (&'static str, &'a str) {
        match self {
            Self::User(name) => ("user", name),
            Self::Group(name) => ("group", name),
        }
    }
}

impl User {
    /// The user that a text names: `NAME`, `NAME:GROUP`, `UID` or `UID:GID`, in any combination. Root exists in images without the
    /// files too, and so does every number.
    pub fn find(text: &str) -> Result<Self, MissingAccount<'_>> {
        Self::find_in(text, &read(PASSWD), &read(GROUP))
    }

    fn find_in<'a>(text: &'a str, passwd: &[u8], group: &[u8]) -> Result<Self, MissingAccount<'a>> {
        let (user, own_group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let (name, uid, mut gid, home) = user_in(passwd, user.as_bytes())
            .or_else(|| (user.as_bytes() == ROOT).then(|| (ROOT.to_vec(), 0, 0, b"/root".to_vec())))
            .or_else(|| number(user.as_bytes()).map(|uid| user_numbered(passwd, uid)))
            .ok_or(MissingAccount::User(user))?;
        let mut groups = groups_in(group, &name, gid);
        if let Some(own_group) = own_group {
            gid = group_in(group, own_group.as_bytes())
                .or_else(|| number(own_group.as_bytes()))
                .ok_or(MissingAccount::Group(own_group))?;
            // As `chroot --userspec` and container runtimes do: a chosen group is the only one.
            groups = vec![gid];
        }
        Ok(Self { name, uid, gid, groups, home })
    }

    /// A path of the user: relative ones, `~` and `~/…` begin at the home.
    pub fn path(&self, path: &[u8]) -> Vec<u8> {
        if path.starts_with(b"/") {
            return path.to_vec();
        }
        let below = path.strip_prefix(b"~").filter(|rest| rest.is_empty() || rest.starts_with(b"/"));
        let below = below.unwrap_or(path);
        let below = &below[below.iter().take_while(|byte| **byte == b'/').count()..];
        if below.is_empty() {
            return self.home.clone();
        }
        let between: &[u8] = if self.home.ends_with(b"/") { b"" } else { b"/" };
        [&self.home, between, below].concat()
    }
}

/// The names of users and groups by their numbers.
#[derive(Default)]
pub struct Names {
    users: Vec<(u32, String)>,
    groups: Vec<(u32, String)>,
}

impl Names {
    /// Reads both files. A missing or unusable one counts as empty.
    pub fn read() -> Self {
        let numbered = |content: &[u8]| {
            let rows = content.split(|byte| *byte == b'\n').map(fields);
            rows.filter_map(|row| Some((number(row.get(2)?)?, text(row.first()?)?))).collect()
        };
        Self { users: numbered(&read(PASSWD)), groups: numbered(&read(GROUP)) }
    }

    /// The name of a user, or its number.
    pub fn user(&self, uid: u32) -> String {
        of_number(&self.users, uid)
    }

    /// The name of a group, or its number.
    pub fn group(&self, gid: u32) -> String {
        of_number(&self.groups, gid)
    }
}

fn of_number(names: &[(u32, String)], number: u32) -> String {
    let found = names.iter().find(|(known, _)| *known == number);
    found.map_or_else(|| number.to_string(), |(_, name)| name.clone())
}

fn text(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    (!name.is_empty() && name.len() <= guest_proto::MAX_USER).then(|| name.to_owned())
}

/// The content of a file; empty if it cannot be read.
pub fn read(path: &str) -> Vec<u8> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Vec::new() };
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if is_file { read_file(&file).unwrap_or_default() } else { Vec::new() }
}

fn read_file(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut content = Vec::new();
    let mut piece = [0; 8 * 1024];
    while content.len() < MAX_BYTES {
        match rustix::io::read(file, &mut piece) {
            Ok(0) => break,
            Ok(n) => content.extend_from_slice(&piece[..n]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(content)
}

fn fields(row: &[u8]) -> Vec<&[u8]> {
    row.split(|byte| *byte == b':').collect()
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok().filter(|number| *number != u32::MAX)
}

/// Name, number, group and home of a user.
type UserRow = (Vec<u8>, u32, u32, Vec<u8>);

fn user_in(passwd: &[u8], name: &[u8]) -> Option<UserRow> {
    rows(passwd).find(|(found, ..)| found == name)
}

/// The user with a number, which may be none of those in the file.
fn user_numbered(passwd: &[u8], uid: u32) -> UserRow {
    let found = rows(passwd).find(|(_, known, ..)| *known == uid);
    found.unwrap_or_else(|| (uid.to_string().into_bytes(), uid, 0, b"/".to_vec()))
}

fn rows(passwd: &[u8]) -> impl Iterator<Item = UserRow> {
    passwd.split(|byte| *byte == b'\n').map(fields).filter_map(|row| match row.as_slice() {
        [name, _, uid, gid, _, home, ..] => {
            let is_path = home.starts_with(b"/") && !home.contains(&0) && home.len() < guest_proto::MAX_PATH;
            let home = if is_path { home.to_vec() } else { b"/".to_vec() };
            Some((name.to_vec(), number(uid)?, number(gid)?, home))
        }
        _ => None,
    })
}

fn group_in(group: &[u8], name: &[u8]) -> Option<u32> {
    group.split(|byte| *byte == b'\n').map(fields).find_map(|row| match row.as_slice() {
        [found, _, gid, ..] if *found == name => number(gid),
        _ => None,
    })
}

/// The groups that list the user as a member, and its own.
fn groups_in(group: &[u8], name: &[u8], own: u32) -> Vec<u32> {
    let mut groups = vec![own];
    for row in group.split(|byte| *byte == b'\n').map(fields) {
        if let [_, _, gid, members, ..] = row.as_slice()
            && members.split(|byte| *byte == b',').any(|member| member == name)
            && let Some(gid) = number(gid)
            && !groups.contains(&gid)
            && groups.len() < MAX_GROUPS
        {
            groups.push(gid);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] =
        b"root:x:0:0:root:/root:/bin/bash\n\nbroken\nuser:x:1000:1001:,,,:/srv/user:/bin/bash\n\
        bad:x:-1:0::/:\nlate:x:4294967295:0::/:\nodd:x:7:7::relative:/bin/sh";

    const GROUP: &[u8] = b"root:x:0:\nuser:x:1001:\nsudo:x:27:other,user\nstaff:x:50:";

    #[test]
    fn users_are_found_by_name_or_number() {
        let found = |text: &str| {
            let user = User::find_in(text, PASSWD, GROUP).ok()?;
            Some((user.uid, user.gid, user.groups, String::from_utf8(user.home).ok()?))
        };
        let user = |uid, gid, groups: &[u32], home: &str| Some((uid, gid, groups.to_vec(), home.to_owned()));
        assert_eq!(found("user"), user(1000, 1001, &[1001, 27], "/srv/user"));
        assert_eq!(found("1000"), user(1000, 1001, &[1001, 27], "/srv/user"));
        assert_eq!(found("user:staff"), user(1000, 50, &[50], "/srv/user"));
        assert_eq!(found("user:77"), user(1000, 77, &[77], "/srv/user"));
        assert_eq!(found("1234:5"), user(1234, 5, &[5], "/"));
        assert_eq!(found("1234"), user(1234, 0, &[0], "/"));
        assert_eq!(found("odd"), user(7, 7, &[7], "/"));
        assert_eq!(User::find_in("root", b"", b"").map(|user| user.uid), Ok(0));
        for text in ["use", "", "bad", "late", "broken", "user:none", "-1", "4294967295", ":staff", "user:"] {
            assert_eq!(found(text), None, "{text}");
        }
        let missing = |text| User::find_in(text, PASSWD, GROUP).unwrap_err();
        assert_eq!(missing("node:node"), MissingAccount::User("node"));
        assert_eq!(missing("user:node"), MissingAccount::Group("node"));
    }

    #[test]
    fn groups_are_those_that_list_the_member() {
        let group =
            b"root:x:0:\nuser:x:1001:\nsudo:x:27:other,user\nnone:x:5:users\ntwice:x:27:user\nx:x:y:user";
        assert_eq!(groups_in(group, b"user", 1001), [1001, 27]);
        assert_eq!(groups_in(b"", b"user", 3), [3]);
    }

    #[test]
    fn paths_begin_at_the_home() {
        let user = User { name: vec![], uid: 1, gid: 1, groups: vec![], home: b"/srv/u".to_vec() };
        for (path, expected) in [
            ("", "/srv/u"),
            ("~", "/srv/u"),
            ("~/", "/srv/u"),
            ("~/a", "/srv/u/a"),
            ("~a", "/srv/u/~a"),
            ("a/../b", "/srv/u/a/../b"),
            ("/a", "/a"),
            ("~//etc", "/srv/u/etc"),
        ] {
            assert_eq!(user.path(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }
}
