//! Declares an enum whose variants have names, each once: in bodies, as text, and in schemas.

/// `by` is the method that returns the name of a value.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident by $by:ident { $($(#[$note:meta])* $variant:ident = $text:tt,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $type {
            $($(#[$note])* #[serde(rename = $text)] $variant,)+
        }

        impl $type {
            /// All of them, in their order here.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The name in bodies, queries and streams.
            pub const fn $by(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.$by())
            }
        }
    };
}
