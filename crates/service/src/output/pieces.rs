//! The output of one stream of a command, cut into the data of events. Called by the streams of execute and of executions.

use api::OutputEncoding;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reader::OutputForm;
use rules::LineSplitter;

/// Bytes of a piece in base64; a multiple of three, so that it needs no padding.
const PIECE_BYTES: usize = 48 << 10;

/// Cuts one stream. What it holds is at most a line that has not ended.
pub struct Pieces {
    form: OutputForm,
    splitter: LineSplitter,
}

/// The data of an event, and the field that says how to read it.
pub struct Piece {
    /// The value of `data`.
    pub data: String,
    /// Its name and value.
    pub field: Option<(&'static str, &'static str)>,
}

impl Pieces {
    /// Cuts a stream from its beginning, or from the end of a piece.
    pub fn new(form: OutputForm) -> Self {
        Self { form, splitter: LineSplitter::new() }
    }

    /// Takes bytes off the front of `bytes` until a piece is complete. `None`: they are used up.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<Piece> {
        if self.form != OutputForm::Bytes {
            return self.splitter.next_piece(bytes).map(|line| self.line(line));
        }
        let (piece, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES));
        *bytes = rest;
        let field = Some(("encoding", OutputEncoding::Base64.as_str()));
        (!piece.is_empty()).then(|| Piece { data: STANDARD.encode(piece), field })
    }

    /// What is left when the stream has ended, piece by piece.
    pub fn next_remainder(&mut self) -> Option<Piece> {
        self.splitter.next_remainder().map(|line| self.line(line))
    }

    /// How many bytes were taken and not returned.
    pub fn held_bytes(&self) -> usize {
        self.splitter.held_bytes()
    }

    fn line(&self, data: String) -> Piece {
        let end = self.splitter.last_end().name().filter(|_| self.form == OutputForm::LinesWithEnds);
        Piece { data, field: end.map(|end| ("end", end)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(form: OutputForm, chunks: &[&[u8]]) -> Vec<(String, Option<&'static str>)> {
        let (mut pieces, mut all) = (Pieces::new(form), Vec::new());
        for mut chunk in chunks.iter().copied() {
            all.extend(std::iter::from_fn(|| pieces.next(&mut chunk)));
        }
        all.extend(std::iter::from_fn(|| pieces.next_remainder()));
        all.into_iter().map(|piece| (piece.data, piece.field.map(|(_, value)| value))).collect()
    }

    #[test]
    fn bytes_are_passed_on_as_they_come() {
        let of = |data: &str| (data.to_owned(), Some("base64"));
        assert_eq!(pieces(OutputForm::Bytes, &[b"\xff", b"", b"a\r\n"]), [of("/w=="), of("YQ0K")]);
        let long = vec![b'x'; PIECE_BYTES + 1];
        let lengths: Vec<_> =
            pieces(OutputForm::Bytes, &[&long]).iter().map(|(data, _)| data.len()).collect();
        assert_eq!(lengths, [64 << 10, 4]);
    }

    #[test]
    fn lines_say_how_they_ended_on_request() {
        let of = |data: &str, end| (data.to_owned(), end);
        let chunks: [&[u8]; 2] = [b"a\r", b"\nb\nc"];
        assert_eq!(
            pieces(OutputForm::LinesWithEnds, &chunks),
            [of("a", Some("crlf")), of("b", None), of("c", Some("none"))]
        );
        assert_eq!(pieces(OutputForm::Lines, &chunks), ["a", "b", "c"].map(|data| of(data, None)));
    }
}
