//! The first line of a manifest, and whether the rest is what it says.

use crate::chunk::ChunkHash;
use crate::secret::Code;

const FORMAT: &str = "sandboxd-snapshot 2 ";
const FORMAT_WITHOUT_CODE: &str = "sandboxd-snapshot 1 ";
/// The longest first line.
const LINE_BYTES: usize = 256;

/// An object whose content has the hash of its first line.
pub(super) struct Envelope<'a> {
    pub(super) hash: ChunkHash,
    pub(super) code: Option<Code>,
    pub(super) body: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads an object, which may be anything.
    pub(super) fn parse(object: &'a [u8]) -> Result<Self, String> {
        let damaged = || format!("it does not begin with '{FORMAT}', a hash and an authentication code");
        let start = object.get(..LINE_BYTES).unwrap_or(object);
        let end = start.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
        let (line, rest) = object.split_at(end);
        let line = str::from_utf8(line).map_err(|_| damaged())?;
        let parsed = match (line.strip_prefix(FORMAT), line.strip_prefix(FORMAT_WITHOUT_CODE)) {
            (Some(rest), _) => rest
                .split_once(' ')
                .and_then(|(hash, code)| Some((hash.parse().ok()?, Some(Code::parse(code)?)))),
            (None, Some(hash)) => hash.parse().ok().map(|hash| (hash, None)),
            (None, None) => None,
        };
        let (hash, code) = parsed.ok_or_else(damaged)?;
        let body = rest.get(1..).unwrap_or_default();
        if ChunkHash::of(body) != hash {
            return Err("its content has another hash".to_owned());
        }
        Ok(Self { hash, code, body })
    }

    pub(super) fn to_object(&self) -> Vec<u8> {
        let line = match self.code {
            Some(code) => format!("{FORMAT}{} {code}\n", self.hash),
            None => format!("{FORMAT_WITHOUT_CODE}{}\n", self.hash),
        };
        [line.as_bytes(), self.body].concat()
    }
}
