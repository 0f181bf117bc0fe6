//! Scopes: what a key may do.

use std::fmt;
use std::str::FromStr;

use crate::text::field_names::mistyped;

/// One permission of a key. `admin` includes all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// See sandboxes, files, ports and events.
    Read,
    /// Run commands.
    Execute,
    /// Create, change and terminate sandboxes.
    Write,
    Admin,
}

impl Scope {
    /// The weakest first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Execute, Self::Write, Self::Admin];

    /// The name in the API and in records of keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Execute => "execute",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Execute => 2,
            Self::Write => 4,
            Self::Admin => 8,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of scopes, never empty. Its text is their names in a fixed order, separated by commas.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

/// The text is not a set of scopes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scopes are {got}; allowed: one or more of read, execute, write, admin, separated by commas{}", suggestion(*.meant))]
pub struct BadScopes {
    got: String,
    /// What the first name that is none may mean.
    meant: Option<Scope>,
}

fn suggestion(meant: Option<Scope>) -> String {
    meant.map_or_else(String::new, |scope| format!("; did you mean '{scope}'?"))
}

/// The scope that a name means which is the beginning of its own, such as `exec`, or a typing error.
fn meant_by(name: &str) -> Option<Scope> {
    let abbreviated =
        |scope: &Scope| name.len() > 1 && scope.as_str().starts_with(&name.to_ascii_lowercase());
    let nearest = || mistyped(name, &Scope::ALL.map(Scope::as_str));
    let typed =
        || nearest().and_then(|nearest| Scope::ALL.into_iter().find(|scope| scope.as_str() == nearest));
    Scope::ALL.into_iter().find(abbreviated).or_else(typed)
}

impl Scopes {
    /// Every scope there is.
    pub const ALL: Self = Self(15);

    /// Whether these scopes include `scope`. `admin` includes every scope; the others only themselves.
    pub fn allows(self, scope: Scope) -> bool {
        self.0 & (scope.bit() | Scope::Admin.bit()) != 0
    }

    /// The scopes in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & scope.bit() != 0)
    }
}

impl FromStr for Scopes {
    type Err = BadScopes;

    /// `read,execute`; spaces around a name and duplicates are ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bits = 0;
        for name in text.split(',').map(str::trim) {
            let scope = Scope::ALL.into_iter().find(|scope| scope.as_str() == name);
            let refused = || BadScopes { got: crate::text::quoted::quoted(text), meant: meant_by(name) };
            bits |= scope.ok_or_else(refused)?.bit();
        }
        Ok(Self(bits))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{scope}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
