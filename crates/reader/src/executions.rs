//! Queries and headers of the endpoints of executions.

use rules::{OutputPosition, QueryError, quoted};

use crate::{FileQuery, Refusal, file_query};

const OUTPUT_OFFSET: &str = "an output offset such as '512.0', or 'end'";

/// The offset and the limit of a page of executions.
pub fn page(query: Option<&str>) -> Result<(u64, u32), Refusal> {
    file_query(query)?.page()
}

/// An output offset in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputOffset {
    At(OutputPosition),
    /// After the last event.
    End,
}

/// Parses an output offset, such as the id of an output event. A single number is an offset in stdout.
pub fn output_offset(text: &str, field: &str) -> Result<OutputOffset, Refusal> {
    let fault =
        || QueryError { field: field.to_owned(), got: quoted(text), allowed: OUTPUT_OFFSET.to_owned() };
    if text == "end" {
        return Ok(OutputOffset::End);
    }
    let whole = if text.contains('.') { text.to_owned() } else { format!("{text}.0") };
    whole.parse().map(OutputOffset::At).map_err(|_| fault().into())
}

/// The query of an endpoint of executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionQuery {
    pub after: Option<OutputOffset>,
    /// Close standard input after the body.
    pub close: bool,
    pub auto_resume: bool,
    pub line_ends: bool,
}

/// Whether the events of a stream have the field `end`.
pub fn line_ends(query: Option<&str>) -> Result<bool, Refusal> {
    file_query(query)?.flag("lineEnds", false)
}

/// Parses the query of output, attach, stdin, signal and cancel.
pub fn execution_query(query: Option<&str>) -> Result<ExecutionQuery, Refusal> {
    let query: FileQuery = file_query(query)?;
    let after = query.text("after", OUTPUT_OFFSET)?.map(|text| output_offset(text, "after")).transpose()?;
    let (close, auto_resume) = (query.flag("close", false)?, query.flag("autoResume", true)?);
    Ok(ExecutionQuery { after, close, auto_resume, line_ends: query.flag("lineEnds", false)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_offsets_are_parsed_strictly() {
        let at = |stdout, stderr| OutputOffset::At(OutputPosition { stdout, stderr });
        for (text, read) in
            [("0", at(0, 0)), ("512", at(512, 0)), ("7.9", at(7, 9)), ("end", OutputOffset::End)]
        {
            assert_eq!(output_offset(text, "after"), Ok(read));
        }
        for text in ["", "-1", "1.", "01", "1.2.3", "END", "99999999999999999999", "1e3", " 1"] {
            assert!(output_offset(text, "after").is_err(), "{text:?}");
        }
        let query = execution_query(Some("after=5&close=true")).unwrap();
        assert_eq!((query.after, query.close, query.auto_resume), (Some(at(5, 0)), true, true));
        assert!(
            execution_query(Some("after=1&after=2")).is_err() && execution_query(Some("close=1")).is_err()
        );
        assert_eq!(page(Some("limit=3&offset=4")), Ok((4, 3)));
        assert_eq!(page(None), Ok((0, 20)));
    }
}
