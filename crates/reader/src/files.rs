//! The queries of file operations, and the range of a read.
//!
//! A path is any bytes, percent-encoded: the kernel does not require UTF-8. Unknown parameters are ignored.

use api::bounds::{MAX_SAFE_INTEGER, PAGE_LIMIT, PATH_BYTES, PATH_PART_BYTES, Range};
use rules::{AutoResume, quoted};

use crate::headers::no_encoding;
use crate::percent::{bytes, plus_as_space};
use crate::{FieldFault, RequestRefusal};

/// The parameters, percent-decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileQuery {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Parses a query without its `?`.
pub fn file_query(query: Option<&str>) -> Result<FileQuery, RequestRefusal> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|text| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let broken = |got| {
            let allowed = "percent-encoded text: '%' and two hexadecimal digits, '%25' for a percent sign";
            FieldFault::new("query", quoted(got), allowed)
        };
        let name = bytes(&plus_as_space(name)).ok_or_else(|| broken(name))?;
        let value = bytes(&plus_as_space(value)).ok_or_else(|| broken(value))?;
        Ok((name, value))
    });
    Ok(FileQuery { pairs: pairs.collect::<Result<_, FieldFault>>()? })
}

impl FileQuery {
    fn value(&self, name: &str) -> Result<Option<&[u8]>, FieldFault> {
        let mut found =
            self.pairs.iter().filter(|(known, _)| known == name.as_bytes()).map(|(_, value)| value);
        let value = found.next();
        if found.next().is_some() {
            return Err(FieldFault::new(name, "given twice", "one value"));
        }
        Ok(value.map(Vec::as_slice))
    }

    /// The value of a parameter, if it is there. It must be UTF-8.
    pub fn text(&self, name: &str, allowed: &str) -> Result<Option<&str>, FieldFault> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let text = std::str::from_utf8(value);
        text.map(Some).map_err(|_| FieldFault::new(name, quoted(&String::from_utf8_lossy(value)), allowed))
    }

    /// A required path.
    pub fn path(&self, name: &str) -> Result<Vec<u8>, RequestRefusal> {
        let allowed = "a path: absolute, or relative to the sandbox's working directory; percent-encoded";
        let Some(path) = self.value(name)? else {
            return Err(FieldFault::new(name, "missing", allowed).into());
        };
        if path.is_empty() || path.contains(&0) {
            let got = if path.is_empty() { "empty" } else { "a path with a NUL byte" };
            return Err(FieldFault::new(name, got, allowed).into());
        }
        if path.len() > PATH_BYTES {
            let got = format!("{} bytes long", path.len());
            return Err(FieldFault::new(name, got, format!("at most {PATH_BYTES} bytes")).into());
        }
        if let Some(long) = path.split(|byte| *byte == b'/').find(|part| part.len() > PATH_PART_BYTES) {
            let got = format!("a path with {} bytes between slashes", long.len());
            return Err(FieldFault::new(
                name,
                got,
                format!("at most {PATH_PART_BYTES} bytes between slashes"),
            )
            .into());
        }
        Ok(path.to_vec())
    }

    /// A required path that ends in the name of a file or directory.
    pub fn named_path(&self, name: &str) -> Result<Vec<u8>, RequestRefusal> {
        let path = self.path(name)?;
        let last = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
        if matches!(last, None | Some(b"." | b"..")) {
            let got = quoted(&String::from_utf8_lossy(&path));
            return Err(
                FieldFault::new(name, got, "a path that ends in the name of a file or directory").into()
            );
        }
        Ok(path)
    }

    /// A flag that is `false` by default.
    pub fn flag(&self, name: &str) -> Result<bool, RequestRefusal> {
        Ok(self.optional_flag(name)?.unwrap_or(false))
    }

    /// Whether the request resumes a paused sandbox, which is the default.
    pub fn auto_resume(&self) -> Result<AutoResume, RequestRefusal> {
        Ok(self.optional_flag("autoResume")?.unwrap_or(true).into())
    }

    fn optional_flag(&self, name: &str) -> Result<Option<bool>, RequestRefusal> {
        match self.text(name, "true or false")? {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(FieldFault::new(name, quoted(other), "true or false").into()),
        }
    }

    /// A file mode in octal.
    pub fn mode(&self) -> Result<Option<u32>, RequestRefusal> {
        let allowed = "three or four octal digits such as 644 or 0755";
        let Some(text) = self.text("mode", allowed)? else { return Ok(None) };
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        match u32::from_str_radix(text, 8) {
            Ok(mode) if is_octal => Ok(Some(mode)),
            _ => Err(FieldFault::new("mode", quoted(text), allowed).into()),
        }
    }

    /// The offset and the limit of a page.
    pub fn page(&self) -> Result<(u64, u32), RequestRefusal> {
        // The response repeats it.
        let offset = self.number("offset", 0, 0, MAX_SAFE_INTEGER)?;
        let Range { min, max, default } = PAGE_LIMIT;
        let limit = self.number("limit", default.into(), min.into(), max.into())?;
        Ok((offset, u32::try_from(limit).unwrap_or(max)))
    }

    fn number(&self, name: &str, default: u64, least: u64, most: u64) -> Result<u64, FieldFault> {
        let allowed = format!("a whole number from {least} to {most}");
        let Some(text) = self.text(name, &allowed)? else { return Ok(default) };
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(number) if is_plain && (least..=most).contains(&number) => Ok(number),
            _ => Err(FieldFault::new(name, quoted(text), allowed)),
        }
    }
}

/// A byte range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From an offset, to the end or for a number of bytes.
    From { offset: u64, length: Option<u64> },
    /// The last bytes.
    Last(u64),
}

/// The range in the request. Malformed and multiple ranges are ignored (RFC 9110 section 14.2).
pub fn byte_range<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<ByteRange> {
    let mut values = values.into_iter();
    let only = std::str::from_utf8(values.next()?).ok()?;
    let (unit, range) = only.trim().split_once('=').filter(|_| values.next().is_none())?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match (first, last) {
        ("", last) => number(last).map(ByteRange::Last),
        (first, "") => Some(ByteRange::From { offset: number(first)?, length: None }),
        (first, last) => {
            let offset = number(first)?;
            let length = number(last)?.checked_sub(offset)?.saturating_add(1);
            Some(ByteRange::From { offset, length: Some(length) })
        }
    }
}

/// Checks that the body is neither encoded nor partial.
pub fn raw_content<'a>(
    encodings: impl IntoIterator<Item = &'a [u8]>,
    ranges: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), RequestRefusal> {
    no_encoding(encodings)?;
    if let Some(range) = ranges.into_iter().next() {
        let got = quoted(&String::from_utf8_lossy(range));
        return Err(FieldFault::new(
            "header Content-Range",
            got,
            "no such header; a file is always written as a whole",
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_bytes_and_parameters_are_strict() {
        let query =
            file_query(Some("path=%2Fa+b%ff%2B&recursive=true&mode=0755&x=1&x=2&limit=7&offset=3")).unwrap();
        assert_eq!(query.path("path").unwrap(), b"/a b\xff+");
        assert!(query.flag("recursive").unwrap());
        assert_eq!(query.auto_resume().unwrap(), AutoResume::Allowed);
        let forbidden = file_query(Some("autoResume=false")).unwrap();
        assert_eq!(forbidden.auto_resume().unwrap(), AutoResume::Forbidden);
        assert_eq!((query.mode().unwrap(), query.page().unwrap()), (Some(0o755), (3, 7)));
        assert!(query.flag("x").is_err());
        for bad in ["%", "%4", "%zz", "a=%g0"] {
            assert!(file_query(Some(bad)).is_err(), "{bad}");
        }
        let (long, long_part) = ("x/".repeat(2048), "x".repeat(256));
        for bad in [
            "",
            "path=",
            "path=a%00b",
            "path=a&path=b",
            &format!("path={long}"),
            &format!("path={long_part}"),
        ] {
            assert!(file_query(Some(bad)).unwrap().path("path").is_err(), "{bad}");
        }
        let longest = format!("path={}", "x".repeat(255));
        assert!(file_query(Some(&longest)).unwrap().named_path("path").is_ok());
        for nameless in ["/", ".", "..", "a/..", "a/./", "//"] {
            let query = file_query(Some(&format!("path={nameless}"))).unwrap();
            assert!(query.path("path").is_ok() && query.named_path("path").is_err(), "{nameless}");
        }
        for named in ["a", "/a/", "...", "a/..b", ".a"] {
            assert!(
                file_query(Some(&format!("path={named}"))).unwrap().named_path("path").is_ok(),
                "{named}"
            );
        }
        for bad in ["mode=9", "mode=64", "mode=+644", "mode=00644", "mode=", "mode=%ff"] {
            assert!(file_query(Some(bad)).unwrap().mode().is_err(), "{bad}");
        }
        for bad in ["limit=0", "limit=101", "limit=+1", "limit=", "offset=-1", "offset=9007199254740992"] {
            assert!(file_query(Some(bad)).unwrap().page().is_err(), "{bad}");
        }
        assert!(file_query(Some("a=TRUE")).unwrap().flag("a").is_err());
        assert_eq!(file_query(None).unwrap().page().unwrap(), (0, 20));
    }

    #[test]
    fn one_range_or_none() {
        let range = |text: &str| byte_range([text.as_bytes()]);
        let from = |offset, length| Some(ByteRange::From { offset, length });
        assert_eq!(range("bytes=0-0"), from(0, Some(1)));
        assert_eq!(range("bytes=5-"), from(5, None));
        assert_eq!(range("Bytes=5-"), from(5, None));
        assert_eq!(range("bytes=5-9"), from(5, Some(5)));
        assert_eq!(range("bytes=-7"), Some(ByteRange::Last(7)));
        assert_eq!(range("bytes=0-99999999999999999999999"), from(0, Some(u64::MAX)));
        for none in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-",
            "bytes=5-4",
            "bytes=0-1,3-4",
            "items=0-1",
            "bytes=+1-2",
        ] {
            assert_eq!(range(none), None, "{none}");
        }
        assert_eq!(byte_range([&b"bytes=0-1"[..], b"bytes=0-1"]), None);
    }

    #[test]
    fn a_body_comes_as_it_is() {
        let none: [&[u8]; 0] = [];
        assert!(raw_content([&b"identity"[..]], none).is_ok());
        assert!(raw_content([&b"gzip"[..]], none).is_err());
        assert!(raw_content(none, [&b"bytes 0-1/2"[..]]).is_err());
    }
}
