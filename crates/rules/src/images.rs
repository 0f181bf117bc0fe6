//! Which images a list contains. The operator names those of the catalogue. When a create may name any image of a registry, the
//! others were requested by some account: only a client that knows the name sees one.

/// The selection of a list of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageListing<'a> {
    /// All images that may be listed.
    All,
    /// The image with this name.
    Named(&'a str),
}

/// Whether a list contains an image. `any_image`: a create may name images that are not in the catalogue.
pub fn image_is_listed(listing: ImageListing<'_>, name: &str, in_catalogue: bool, any_image: bool) -> bool {
    match listing {
        ImageListing::All => in_catalogue || !any_image,
        ImageListing::Named(requested) => name == requested,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_another_account_is_shown_when_named() {
        let theirs = "registry.example.com/their/secret-project:1";
        assert!(!image_is_listed(ImageListing::All, theirs, false, true));
        assert!(image_is_listed(ImageListing::Named(theirs), theirs, false, true));
        assert!(!image_is_listed(ImageListing::Named("ubuntu:24.04"), theirs, false, true));
    }

    #[test]
    fn the_operators_are_for_all() {
        // In the catalogue, or imported by the operator: without `any_image` nobody else can.
        assert!(image_is_listed(ImageListing::All, "ubuntu:24.04", true, true));
        assert!(image_is_listed(ImageListing::All, "ubuntu:24.04", true, false));
        assert!(image_is_listed(ImageListing::All, "imported:1", false, false));
        assert!(!image_is_listed(ImageListing::Named("ubuntu"), "ubuntu:24.04", true, false));
    }
}
