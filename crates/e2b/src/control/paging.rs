//! Pages of lists. The token of the next page is its offset. Pure.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;

use super::query;
use crate::error::E2bError;

const NEXT: HeaderName = HeaderName::from_static("x-next-token");
const MAX_LIMIT: u32 = 100;

/// A page that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub limit: u32,
    pub offset: u64,
}

impl Page {
    pub fn read(text: Option<&str>) -> Result<Self, E2bError> {
        let given = query::pairs(text);
        let number = |name: &str, default: u32| match given.get(name).filter(|value| !value.is_empty()) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| {
                E2bError::invalid(format!("{name} is {}; allowed: a number", rules::quoted(text)))
            }),
        };
        let limit = number("limit", MAX_LIMIT)?;
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(E2bError::invalid(format!("limit is {limit}; allowed: 1 to {MAX_LIMIT}")));
        }
        Ok(Self { limit, offset: number("nextToken", 0)?.into() })
    }

    /// The items of the page among all.
    pub fn of<T>(self, all: &[T]) -> &[T] {
        let from = usize::try_from(self.offset).unwrap_or(usize::MAX).min(all.len());
        let rest = &all[from..];
        &rest[..rest.len().min(self.limit as usize)]
    }

    /// Adds the token of the next page, if there is one.
    pub fn mark_next(self, response: &mut Response, shown: usize, total: u64) {
        let next = self.offset.saturating_add(shown as u64);
        if next < total && shown > 0 {
            response.headers_mut().insert(NEXT, HeaderValue::from(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn all_pages_together_are_the_list() {
        let all: Vec<u32> = (0..7).collect();
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let page = Page::read(Some(&format!("limit=3&nextToken={token}"))).unwrap();
            found.extend_from_slice(page.of(&all));
            let mut response = Response::new(Body::empty());
            page.mark_next(&mut response, page.of(&all).len(), 7);
            match response.headers().get(NEXT) {
                Some(next) => token = next.to_str().unwrap().to_owned(),
                None => break,
            }
        }
        assert_eq!(found, all);
    }

    #[test]
    fn pages_are_checked() {
        assert_eq!(Page::read(None).unwrap(), Page { limit: 100, offset: 0 });
        for wrong in ["limit=0", "limit=101", "limit=x", "nextToken=x", "nextToken=-1"] {
            assert_eq!(Page::read(Some(wrong)).unwrap_err().status.as_u16(), 400, "{wrong}");
        }
        let beyond = Page { limit: 2, offset: u64::MAX };
        assert!(beyond.of(&[1, 2, 3]).is_empty());
        let mut response = Response::new(Body::empty());
        beyond.mark_next(&mut response, 0, 3);
        assert!(!response.headers().contains_key(NEXT));
    }
}
