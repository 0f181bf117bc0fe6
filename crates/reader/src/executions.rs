//! Queries and headers of the endpoints of executions.

use api::OutputEncoding;
use rules::{AutoResume, OutputPosition, QueryError, quoted};

use crate::{FieldFault, FileQuery, RequestRefusal, file_query};

const OUTPUT_OFFSET: &str = "an output offset such as '512.0', or 'end'";
const ENCODINGS: &str = "'text' or 'base64'";

/// The offset and the limit of a page of executions.
pub fn page(query: Option<&str>) -> Result<(u64, u32), RequestRefusal> {
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
pub fn output_offset(text: &str, field: &str) -> Result<OutputOffset, RequestRefusal> {
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
    pub auto_resume: AutoResume,
    pub form: OutputForm,
}

/// What the events of a stream are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputForm {
    /// Lines of text.
    #[default]
    Lines,
    /// Lines of text that say how they ended.
    LinesWithEnds,
    /// Bytes in base64.
    Bytes,
}

impl OutputForm {
    /// How a response without events has the output.
    pub fn encoding(self) -> OutputEncoding {
        match self {
            Self::Lines | Self::LinesWithEnds => OutputEncoding::Text,
            Self::Bytes => OutputEncoding::Base64,
        }
    }
}

/// The form of the output that a query asks for. Bytes have their line ends anyway.
pub fn output_form(query: Option<&str>) -> Result<OutputForm, RequestRefusal> {
    form(&file_query(query)?)
}

fn form(query: &FileQuery) -> Result<OutputForm, RequestRefusal> {
    let line_ends = query.flag("lineEnds")?;
    match query.text("encoding", ENCODINGS)? {
        Some("base64") => Ok(OutputForm::Bytes),
        None | Some("text") if line_ends => Ok(OutputForm::LinesWithEnds),
        None | Some("text") => Ok(OutputForm::Lines),
        Some(other) => Err(FieldFault::new("encoding", quoted(other), ENCODINGS).into()),
    }
}

/// Parses the query of output, attach, stdin, signal and cancel.
pub fn execution_query(query: Option<&str>) -> Result<ExecutionQuery, RequestRefusal> {
    let query: FileQuery = file_query(query)?;
    let after = query.text("after", OUTPUT_OFFSET)?.map(|text| output_offset(text, "after")).transpose()?;
    let (close, auto_resume) = (query.flag("close")?, query.auto_resume()?);
    Ok(ExecutionQuery { after, close, auto_resume, form: form(&query)? })
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
        assert_eq!(
            (query.after, query.close, query.auto_resume),
            (Some(at(5, 0)), true, AutoResume::Allowed)
        );
        assert!(
            execution_query(Some("after=1&after=2")).is_err() && execution_query(Some("close=1")).is_err()
        );
        for (text, form) in [
            ("", OutputForm::Lines),
            ("encoding=text", OutputForm::Lines),
            ("encoding=text&lineEnds=true", OutputForm::LinesWithEnds),
            ("lineEnds=true&encoding=base64", OutputForm::Bytes),
        ] {
            assert_eq!(output_form(Some(text)), Ok(form), "{text}");
        }
        for text in
            ["encoding=", "encoding=BASE64", "encoding=text&encoding=text", "encoding=base64&lineEnds=1"]
        {
            assert!(output_form(Some(text)).is_err(), "{text}");
        }
        assert_eq!(page(Some("limit=3&offset=4")), Ok((4, 3)));
        assert_eq!(page(None), Ok((0, 20)));
    }
}
