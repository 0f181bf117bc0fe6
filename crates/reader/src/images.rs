//! The query of a list of images.

use crate::{RequestRefusal, file_query};

/// The query of a list of images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageQuery {
    /// Only the image with this name. Any text is allowed; it may match no image.
    pub name: Option<String>,
    pub limit: u32,
    pub offset: u64,
}

/// Parses the query without its `?`.
pub fn images(query: Option<&str>) -> Result<ImageQuery, RequestRefusal> {
    let query = file_query(query)?;
    let name = query.text("name", "the name of an image, in UTF-8")?.map(str::to_owned);
    let (offset, limit) = query.page()?;
    Ok(ImageQuery { name, limit, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_pages_are_read() {
        let asked = |name: Option<&str>, limit, offset| {
            Ok(ImageQuery { name: name.map(str::to_owned), limit, offset })
        };
        assert_eq!(images(None), asked(None, 20, 0));
        assert_eq!(images(Some("name=ubuntu%3A24.04&limit=3&offset=7")), asked(Some("ubuntu:24.04"), 3, 7));
        assert_eq!(images(Some("other=1&name=")), asked(Some(""), 20, 0));
        for query in ["limit=0", "limit=101", "offset=-1", "name=a&name=b", "name=%ff", "name=%f"] {
            assert!(images(Some(query)).is_err(), "{query}");
        }
    }
}
