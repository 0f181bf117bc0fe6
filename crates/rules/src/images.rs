//! Which images a list contains. Those of the operator are for all accounts. The others were requested by some account: another one sees
//! such an image only if it knows the name and may use it.

pub mod eviction;
pub mod pattern;
pub mod policy;
pub mod pulled_bytes;
pub mod reference;

use crate::images::reference::is_same_image;

/// The selection of a list of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageListing<'a> {
    /// All images that may be listed.
    All,
    /// The image with this name.
    Named(&'a str),
}

/// Whose request has brought an image to the host, as the caller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageOwner {
    /// It is in the catalogue, or the operator has imported it.
    Operator,
    /// The account that asks.
    Caller,
    /// Only other accounts. The caller may use it, too.
    Others,
}

/// Whether a list contains an image.
pub fn image_is_listed(listing: ImageListing<'_>, name: &str, owner: ImageOwner) -> bool {
    match listing {
        ImageListing::All => owner != ImageOwner::Others,
        ImageListing::Named(requested) => is_same_image(name, requested),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ImageOwner::{Caller, Operator, Others};

    #[test]
    fn an_image_of_another_account_is_shown_when_named() {
        let theirs = "registry.example.com/their/secret-project:1";
        assert!(!image_is_listed(ImageListing::All, theirs, Others));
        assert!(image_is_listed(ImageListing::Named(theirs), theirs, Others));
        assert!(!image_is_listed(ImageListing::Named("ubuntu:24.04"), theirs, Others));
    }

    #[test]
    fn the_operators_are_for_all_and_own_ones_for_their_account() {
        assert!(image_is_listed(ImageListing::All, "ubuntu:24.04", Operator));
        assert!(image_is_listed(ImageListing::All, "docker.io/library/alpine:3", Caller));
        assert!(!image_is_listed(ImageListing::Named("ubuntu"), "ubuntu:24.04", Operator));
    }

    #[test]
    fn a_name_may_have_any_form() {
        let name = "docker.io/library/alpine:latest";
        assert!(image_is_listed(ImageListing::Named("alpine"), name, Caller));
    }
}
