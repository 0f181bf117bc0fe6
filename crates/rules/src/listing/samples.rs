//! Queries of the resource samples of a sandbox.

use api::Timestamp;

use crate::TimeMs;
use crate::listing::{QueryError, repeated};

/// The times between which samples are requested, both included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleQuery {
    pub start: Option<TimeMs>,
    pub end: Option<TimeMs>,
}

/// Reads the query. Unknown parameters are ignored.
pub fn sample_query(pairs: impl IntoIterator<Item = (String, String)>) -> Result<SampleQuery, QueryError> {
    let (mut start, mut end): (Option<String>, Option<String>) = (None, None);
    for (name, value) in pairs {
        let slot = match name.as_str() {
            "start" => &mut start,
            "end" => &mut end,
            _ => continue,
        };
        if let Some(first) = slot {
            return Err(repeated(name, first, &value));
        }
        *slot = Some(value);
    }
    Ok(SampleQuery { start: time("start", start)?, end: time("end", end)? })
}

fn time(name: &str, value: Option<String>) -> Result<Option<TimeMs>, QueryError> {
    let read = |text: String| match text.parse::<Timestamp>() {
        Ok(at) => Ok(TimeMs(at.0)),
        Err(_) => Err(QueryError::new(name, &text, "a time, such as '2026-01-02T03:04:05.678Z'")),
    };
    value.map(read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Result<SampleQuery, QueryError> {
        sample_query(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn both_times_are_optional() {
        assert_eq!(query(&[("x", "y")]).unwrap(), SampleQuery::default());
        let both = query(&[("start", "1970-01-01T00:00:01Z"), ("end", "1970-01-01T00:00:02.500Z")]).unwrap();
        assert_eq!(both, SampleQuery { start: Some(TimeMs(1000)), end: Some(TimeMs(2500)) });
    }

    #[test]
    fn a_bad_or_repeated_time_is_refused() {
        assert_eq!(query(&[("end", "1")]).unwrap_err().field, "end");
        let twice = query(&[("start", "1970-01-01T00:00:01Z"), ("start", "1970-01-01T00:00:01Z")]);
        assert!(twice.unwrap_err().to_string().starts_with("start is given twice"));
    }
}
