//! Optional values of builders, which take each value by a method.

/// Sets values that may be missing.
pub trait SetSome: Sized {
    /// Calls `set` with the value, if there is one.
    #[must_use]
    fn set_some<T>(self, value: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }
}

impl<B> SetSome for B {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_that_exists_is_set() {
        assert_eq!("a".to_owned().set_some(Some("b"), |text, more| text + more), "ab");
        assert_eq!("a".to_owned().set_some(None, |text, more: &str| text + more), "a");
    }
}
