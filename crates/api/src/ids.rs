//! Ids of sandboxes, snapshots and templates. They are safe in paths, host names and cgroup names: lower-case letters and digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub(crate) const OPAQUE_MIN: usize = 8;
pub(crate) const OPAQUE_MAX: usize = 40;
/// Random characters of a generated id: 20 of base 32 are 100 bits.
const OPAQUE_RANDOM_BYTES: usize = 20;

/// The 32 characters of generated ids, without letters that resemble digits.
pub const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Declares a type of ids with its prefix, and the error of a text that is none.
macro_rules! opaque_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $example:literal, $pattern:literal, $bad:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = $pattern, example = $example))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        #[doc = concat!("The text is not ", $what, " id.")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error("{} id is '{}' and {OPAQUE_MIN} to {OPAQUE_MAX} lower-case letters or digits", $what, $prefix)]
        pub struct $bad;

        impl $name {
            /// What every such id begins with.
            pub const PREFIX: &str = $prefix;

            /// An id from random bytes that the caller passes.
            pub fn from_random(bytes: [u8; OPAQUE_RANDOM_BYTES]) -> Self {
                let opaque = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
                Self($prefix.chars().chain(opaque).collect())
            }

            /// The id with its prefix, as in paths and bodies.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = $bad;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let opaque = text.strip_prefix($prefix).ok_or($bad)?;
                let fits = (OPAQUE_MIN..=OPAQUE_MAX).contains(&opaque.len())
                    && opaque.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
                if fits { Ok(Self(text.to_owned())) } else { Err($bad) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = $bad;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

opaque_id! {
    /// Id of a sandbox: `sb_` and an opaque part of lower-case letters and digits.
    SandboxId, "sb_", "sb_4h1v8x2k9qz7m3t5w0ry", "^sb_[a-z0-9]{8,40}$", BadSandboxId, "a sandbox"
}

opaque_id! {
    /// Id of a snapshot: `snap_` and an opaque part of lower-case letters and digits.
    SnapshotId, "snap_", "snap_7m3t5w0ry4h1v8x2k9qz", "^snap_[a-z0-9]{8,40}$", BadSnapshotId, "a snapshot"
}

opaque_id! {
    /// Id of a template: `tpl_` and an opaque part of lower-case letters and digits.
    TemplateId, "tpl_", "tpl_0ry7m3t5w4h1v8x2k9qz", "^tpl_[a-z0-9]{8,40}$", BadTemplateId, "a template"
}

opaque_id! {
    /// Id of an uploaded build context: `ctx_` and an opaque part of lower-case letters and digits.
    BuildContextId, "ctx_", "ctx_5w4h1v8x2k9qz0ry7m3t", "^ctx_[a-z0-9]{8,40}$", BadBuildContextId, "a build context"
}

impl SandboxId {
    /// The host name inside the sandbox, which may not have an underscore.
    pub fn host_name(&self) -> String {
        self.0.replace('_', "-")
    }

    /// The id without its underscore, which some resolvers refuse in host names. The E2B-compatible API uses this form.
    pub fn compact(&self) -> String {
        self.0.replacen('_', "", 1)
    }

    /// The sandbox with this host name, or with this compact id.
    pub fn from_host_name(name: &str) -> Option<Self> {
        let opaque = name.strip_prefix("sb-").or_else(|| name.strip_prefix("sb"))?;
        format!("{}{opaque}", Self::PREFIX).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_id_parses() {
        let id = SandboxId::from_random([7; OPAQUE_RANDOM_BYTES]);
        assert_eq!(id.as_str().parse::<SandboxId>(), Ok(id.clone()));
        assert!(id.as_str().starts_with("sb_"));
        assert_eq!(SandboxId::from_host_name(&id.host_name()), Some(id.clone()));
        assert_eq!(SandboxId::from_host_name(&id.compact()), Some(id));
        assert_eq!(SandboxId::from_host_name("sbshort"), None);
        assert_eq!(SandboxId::from_host_name("sb_abcdefgh"), None);
        assert_eq!(SandboxId::from_host_name("sb-ab_cdefgh"), None);
    }

    #[test]
    fn path_separators_are_invalid_in_ids() {
        for text in [
            "",
            "sb_",
            "sb_../../etc",
            "sb_ABCDEFGH",
            "sx_abcdefgh",
            "sb_abc",
            "sb_abcdefg\n",
            "sb_abcd.efgh",
        ] {
            assert_eq!(text.parse::<SandboxId>(), Err(BadSandboxId), "{text:?}");
        }
    }

    #[test]
    fn ids_of_one_kind_are_not_ids_of_another() {
        let snapshot = SnapshotId::from_random([3; OPAQUE_RANDOM_BYTES]);
        assert_eq!(snapshot.as_str().parse::<SnapshotId>(), Ok(snapshot.clone()));
        assert_eq!(snapshot.as_str().parse::<SandboxId>(), Err(BadSandboxId));
        assert_eq!("sb_4h1v8x2k".parse::<SnapshotId>(), Err(BadSnapshotId));
        assert_eq!(
            BadSnapshotId.to_string(),
            "a snapshot id is 'snap_' and 8 to 40 lower-case letters or digits"
        );
    }
}
