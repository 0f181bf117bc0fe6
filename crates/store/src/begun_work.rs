//! Records of work that was begun and whose end no daemon has seen.

/// Work that ends a daemon must not be repeated for ever: the record is committed before the work begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BegunWork {
    /// The name of a kind of work. The store knows none.
    pub kind: String,
    /// What is worked on.
    pub subject: String,
    /// How often it was begun since a daemon last lived through it.
    pub starts: u32,
}
