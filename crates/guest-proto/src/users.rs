//! On whose behalf a command runs.

use serde::{Deserialize, Serialize};

/// Most bytes in the name of a user.
pub const MAX_USER: usize = 256;

/// The user of a command. The agent resolves the name in `/etc/passwd` and `/etc/group` of the sandbox, and sets `HOME`,
/// `USER` and `LOGNAME` where the command's environment has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAs<'a> {
    pub user: &'a str,
    pub new_privileges: NewPrivileges,
}

/// Whether set-user-ID programs such as `sudo` get the rights of their owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewPrivileges {
    Denied,
    Allowed,
}
