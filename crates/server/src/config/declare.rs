//! How settings are declared: `table!` makes a table of the file from the list of its keys.
//!
//! A declaration has all that is known of a key. `keys` compares the file with the declarations, and names the nearest key of an unknown
//! one; [`Setting::check_bounds`] checks numbers; `reference` prints `docs/configuration.md`. So a new setting is one declaration, and
//! its use.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use api::Isolation;

/// What the reference calls a key that the operator chooses.
pub const CHOSEN_NAME: &str = "\"NAME\"";

/// The numbers that a setting allows.
pub type NumberRange = RangeInclusive<u64>;

/// For an amount without a natural bound: keeps sums within 64 bits. The reference does not show it.
pub const ANY_AMOUNT: NumberRange = 0..=1 << 40;

/// A table of the file.
pub struct DeclaredTable {
    pub about: &'static str,
    /// In the order of the reference.
    pub keys: Vec<DeclaredKey>,
    /// Describes the keys that the operator chooses, in a table that has them.
    pub names: Option<Box<DeclaredKey>>,
}

/// A key of the file.
pub struct DeclaredKey {
    pub name: &'static str,
    /// Its meaning. A table that describes itself has none, and is a table of the reference; other keys are rows.
    pub about: &'static str,
    /// What it takes, in the words of an operator. Empty: nothing to say besides its type.
    pub kind: &'static str,
    pub range: Option<NumberRange>,
    /// The environment variable that overrides the file.
    pub variable: Option<&'static str>,
    pub shape: Shape,
}

/// How the file writes a value.
pub enum Shape {
    Text,
    Texts,
    TextOrTexts,
    /// Not negative.
    WholeNumber,
    Number,
    TrueOrFalse,
    Table(DeclaredTable),
}

/// A type of settings.
pub trait Setting {
    fn shape() -> Shape;

    /// Checks the numbers that it has. `path` is its key; `range` is that of the declaration.
    fn check_bounds(&self, _path: &str, _range: Option<&NumberRange>, _checks: &mut Vec<Result<()>>) {}

    /// Makes its relative paths absolute: they are below `base`.
    fn resolve(&mut self, _base: &Path) {}
}

impl DeclaredTable {
    /// The declaration of a key, also of one that the operator chooses.
    pub fn find(&self, name: &str) -> Option<&DeclaredKey> {
        self.fixed(name).or(self.names.as_deref())
    }

    pub fn fixed(&self, name: &str) -> Option<&DeclaredKey> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl DeclaredKey {
    /// What the reference says of its type: `count, 1 to 200`.
    pub fn takes(&self) -> String {
        match self.shown_range() {
            Some(range) => format!("{}, {} to {}", self.kind, range.start(), range.end()),
            None => self.kind.to_owned(),
        }
    }

    pub fn shown_range(&self) -> Option<&NumberRange> {
        let is_number = matches!(self.shape, Shape::WholeNumber | Shape::Number);
        self.range.as_ref().filter(|range| is_number && !self.kind.is_empty() && **range != ANY_AMOUNT)
    }

    /// Makes a map a table of the reference. `about` and what the key takes describe its entries then.
    pub fn each(mut self, about: &'static str) -> Self {
        if let Shape::Table(DeclaredTable { about: of_table, names: Some(entry), .. }) = &mut self.shape {
            *of_table = std::mem::take(&mut self.about);
            (entry.about, entry.kind, entry.range) =
                (about, std::mem::take(&mut self.kind), self.range.take());
        }
        self
    }

    /// Describes keys that the operator chooses, whose values are of a type.
    pub fn of_names<T: Setting>(kind: &'static str, about: &'static str) -> Box<Self> {
        Box::new(Self { name: CHOSEN_NAME, about, kind, range: None, variable: None, shape: T::shape() })
    }
}

/// Declares a table:
///
/// ```text
/// table! {
///     /// The description of the table in the reference.
///     pub struct Example {
///         /// The meaning of the key in the reference.
///         key: TYPE = DEFAULT, "WHAT IT TAKES" in LEAST..=MOST, env "VARIABLE";
///         inner: OtherTable;
///     }
/// }
/// ```
///
/// All but name and type can be left out; the default is then that of the type. Three additions are for names that the operator
/// chooses: `, each "MEANING"` makes a map a table of the reference; `..names: TYPE, "WHAT IT TAKES", each "MEANING";` at the end takes all
/// other keys of the table; `#[optional_in(Own)] { … }` repeats its keys in a second table `Own`, for the values of one name.
macro_rules! table {
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    (
        $(#[doc = $about:literal])+
        pub struct $table:ident {
            #[optional_in($own:ident)] { $(
                $(#[doc = $own_about:literal])+
                $own_key:ident: $own_type:ty $(= $own_default:expr)?, $own_kind:literal in $own_range:expr;
            )+ }
            $($others:tt)*
        }
    ) => {
        table! {
            $(#[doc = $about])+
            pub struct $table {
                $($(#[doc = $own_about])+ $own_key: $own_type $(= $own_default)?, $own_kind in $own_range;)+
                $($others)*
            }
        }
        table! {
            /// Values of one name. Absent ones are those of all.
            pub struct $own { $($own_key: Option<$own_type>, "" in $own_range;)+ }
        }
        impl $own {
            /// The values that apply: these, and those of all.
            pub fn over(&self, all: &$table) -> $table {
                $table { $($own_key: self.$own_key.unwrap_or(all.$own_key),)+ ..all.clone() }
            }
        }
    };
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        pub struct $table:ident {
            $(
                $(#[doc = $key_about:literal])*
                $key:ident: $type:ty $(= $default:expr)?
                    $(, $kind:literal $(in $range:expr)?)? $(, env $variable:literal)? $(, each $each:literal)?;
            )*
            $(..$names:ident: $names_type:ty, $names_kind:literal, each $names_about:literal;)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize $($(, $derive)+)?)]
        #[serde(default)]
        pub struct $table {
            $($(#[doc = $key_about])* pub $key: $type,)*
            $(
                #[doc = $names_about]
                #[serde(flatten)]
                pub $names: std::collections::BTreeMap<String, $names_type>,
            )?
        }

        impl Default for $table {
            fn default() -> Self {
                Self { $($key: table!(@default $($default)?),)* $($names: std::collections::BTreeMap::new(),)? }
            }
        }

        const _: () = {
            use $crate::config::declare::{DeclaredKey, DeclaredTable, NumberRange, Setting, Shape, below};

            impl $table {
                pub(in $crate::config) fn declaration() -> DeclaredTable {
                    let keys = vec![$(
                        DeclaredKey {
                            name: stringify!($key),
                            about: concat!($($key_about),*).trim(),
                            kind: concat!($($kind)?),
                            range: table!(@option $($($range)?)?),
                            variable: table!(@option $($variable)?),
                            shape: <$type as Setting>::shape(),
                        } $(.each($each))?
                    ),*];
                    let names = table!(@option $(DeclaredKey::of_names::<$names_type>($names_kind, $names_about))?);
                    DeclaredTable { about: concat!($($about),+).trim(), keys, names }
                }
            }

            impl Setting for $table {
                fn shape() -> Shape {
                    Shape::Table(Self::declaration())
                }

                fn check_bounds(&self, path: &str, _: Option<&NumberRange>, checks: &mut Vec<anyhow::Result<()>>) {
                    $(
                        let range: Option<NumberRange> = table!(@option $($($range)?)?);
                        self.$key.check_bounds(&below(path, stringify!($key)), range.as_ref(), checks);
                    )*
                }

                fn resolve(&mut self, base: &std::path::Path) {
                    $(self.$key.resolve(base);)*
                }
            }
        };
    };
}
pub(super) use table;

/// Names types of settings that have neither numbers nor paths, with their shape.
macro_rules! shapes {
    ($($shape:ident: $($type:ty),+;)+) => {$($(
        impl $crate::config::declare::Setting for $type {
            fn shape() -> $crate::config::declare::Shape {
                $crate::config::declare::Shape::$shape
            }
        }
    )+)+};
}
pub(super) use shapes;

shapes! {
    Text: String, Isolation;
    Texts: Vec<String>;
    TrueOrFalse: bool;
}

macro_rules! whole_numbers {
    ($($type:ty: $to_u64:expr;)+) => {$(
        impl Setting for $type {
            fn shape() -> Shape {
                Shape::WholeNumber
            }

            fn check_bounds(&self, path: &str, range: Option<&NumberRange>, checks: &mut Vec<Result<()>>) {
                let to_u64: fn(Self) -> u64 = $to_u64;
                checks.extend(range.map(|range| within(path, to_u64(*self), range)));
            }
        }
    )+};
}

whole_numbers! {
    u16: u64::from;
    u32: u64::from;
    u64: std::convert::identity;
    usize: |number| number as u64;
}

impl Setting for f64 {
    fn shape() -> Shape {
        Shape::Number
    }

    fn check_bounds(&self, path: &str, range: Option<&NumberRange>, checks: &mut Vec<Result<()>>) {
        let Some((least, most)) = range.map(|range| (range.start(), range.end())) else { return };
        let is_within = (*least as f64..=*most as f64).contains(self);
        checks.push(match is_within {
            true => Ok(()),
            false => Err(anyhow!("{path} is {self}; it must be a number, {least} to {most}")),
        });
    }
}

impl Setting for PathBuf {
    fn shape() -> Shape {
        Shape::Text
    }

    /// An empty path stands for none.
    fn resolve(&mut self, base: &Path) {
        if !self.as_os_str().is_empty() {
            *self = base.join(&*self);
        }
    }
}

impl<T: Setting> Setting for Option<T> {
    fn shape() -> Shape {
        T::shape()
    }

    fn check_bounds(&self, path: &str, range: Option<&NumberRange>, checks: &mut Vec<Result<()>>) {
        self.iter().for_each(|value| value.check_bounds(path, range, checks));
    }

    fn resolve(&mut self, base: &Path) {
        self.iter_mut().for_each(|value| value.resolve(base));
    }
}

/// Values by names that the operator chooses. The range is that of each number.
impl<T: Setting> Setting for BTreeMap<String, T> {
    fn shape() -> Shape {
        Shape::Table(DeclaredTable {
            about: "",
            keys: Vec::new(),
            names: Some(DeclaredKey::of_names::<T>("", "")),
        })
    }

    fn check_bounds(&self, path: &str, range: Option<&NumberRange>, checks: &mut Vec<Result<()>>) {
        for (name, value) in self {
            value.check_bounds(&format!("{path}.\"{name}\""), range, checks);
        }
    }

    fn resolve(&mut self, base: &Path) {
        self.values_mut().for_each(|value| value.resolve(base));
    }
}

/// The path of a key. That of the whole file is empty.
pub fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Checks a number. The error names the key, the value and the range.
pub fn within(key: &str, value: u64, range: &NumberRange) -> Result<()> {
    ensure!(range.contains(&value), "{key} is {value}; it must be {} to {}", range.start(), range.end());
    Ok(())
}
