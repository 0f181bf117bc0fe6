//! Names that owners give to their sandboxes. A path accepts the name of a living sandbox in place of its id.

use std::fmt;
use std::str::FromStr;

use crate::SandboxId;
use crate::bounds::SANDBOX_NAME_CHARS;

/// The key under which records have the name, among the tags of the owner. Requests can use it in place of the field `name`, which the
/// E2B-compatible API does not have; lists can be filtered by it.
pub const NAME_KEY: &str = "sandboxd.name";

/// A valid name of a sandbox: letters, digits, `_`, `.` and `-`, the first one a letter or a digit. It never begins like an id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SandboxName(String);

/// The text is not a name of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "1 to {SANDBOX_NAME_CHARS} letters, digits, '_', '.' or '-', beginning with a letter or a digit and not with '{}'",
    SandboxId::PREFIX
)]
pub struct BadSandboxName;

impl SandboxName {
    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxName {
    type Err = BadSandboxName;

    fn from_str(text: &str) -> Result<Self, BadSandboxName> {
        let is_good = text.len() <= SANDBOX_NAME_CHARS
            && text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
            && !text.starts_with(SandboxId::PREFIX);
        if is_good { Ok(Self(text.to_owned())) } else { Err(BadSandboxName) }
    }
}

impl From<SandboxName> for String {
    fn from(name: SandboxName) -> Self {
        name.0
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_paths_and_never_ids() {
        for text in ["a", "7", "web", "Web_2.x-y", "sb", "sbx", "sb-web", "snap_abcdefgh", &"x".repeat(63)] {
            assert_eq!(text.parse::<SandboxName>().map(String::from).as_deref(), Ok(text));
        }
        let bad = [
            "",
            ".",
            "..",
            "_a",
            "-a",
            "a/b",
            "a b",
            "a%2f",
            "a:b",
            "ä",
            "a\n",
            "sb_",
            "sb_web",
            "sb_abcdefgh",
        ];
        for text in bad.into_iter().chain([&*"x".repeat(64)]) {
            assert_eq!(text.parse::<SandboxName>(), Err(BadSandboxName), "{text:?}");
        }
        assert_eq!(
            BadSandboxName.to_string(),
            "1 to 63 letters, digits, '_', '.' or '-', beginning with a letter or a digit and not with 'sb_'"
        );
    }
}
