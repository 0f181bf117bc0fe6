//! The result of a tool: texts for the model, and the same data as structured content.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;

use crate::failure::ToolFailure;

/// What a tool returns.
#[derive(Debug)]
pub struct ToolReply<T> {
    /// None: the structured content as JSON.
    content: Option<Vec<ContentBlock>>,
    note: Option<String>,
    structured: T,
}

impl<T> ToolReply<T> {
    /// A result whose text is the structured content as JSON, and a note.
    pub fn json(note: Option<String>, structured: T) -> Self {
        Self { content: None, note, structured }
    }

    /// A result with these texts.
    pub fn texts(texts: impl IntoIterator<Item = String>, structured: T) -> Self {
        let content = texts.into_iter().filter(|text| !text.is_empty()).map(ContentBlock::text).collect();
        Self { content: Some(content), note: None, structured }
    }

    /// Adds content after the texts, such as images.
    pub fn with(mut self, blocks: impl IntoIterator<Item = ContentBlock>) -> Self {
        self.content.get_or_insert_default().extend(blocks);
        self
    }

    /// The same result as one of several that a tool can have.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> ToolReply<U> {
        ToolReply { content: self.content, note: self.note, structured: to(self.structured) }
    }
}

impl<T: Serialize> ToolReply<T> {
    /// The result in the protocol.
    pub fn into_result(self) -> Result<CallToolResult, ToolFailure> {
        let mut content = match self.content {
            Some(content) => content,
            // Of the type and not of the value, which has another order.
            None => {
                vec![ContentBlock::text(
                    serde_json::to_string(&self.structured).map_err(|error| unserializable(&error))?,
                )]
            }
        };
        content.extend(self.note.map(ContentBlock::text));
        let structured = serde_json::to_value(self.structured).map_err(|error| unserializable(&error))?;
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(structured);
        Ok(result)
    }
}

fn unserializable(error: &serde_json::Error) -> ToolFailure {
    ToolFailure::new(format!("The result cannot be serialized: {error}."), "Report this to the user.")
}

/// For numbers that a result leaves out if they are zero.
pub fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(reply: ToolReply<impl Serialize>) -> (Vec<String>, serde_json::Value) {
        let result = serde_json::to_value(reply.into_result().unwrap()).unwrap();
        let texts = result["content"].as_array().unwrap().iter();
        let texts = texts.map(|block| block["text"].as_str().unwrap_or("(image)").to_owned());
        (texts.collect(), result["structuredContent"].clone())
    }

    #[derive(Serialize)]
    struct Outcome {
        second: u8,
        first: u8,
    }

    #[test]
    fn the_text_is_the_content_in_the_order_of_its_type_with_the_note_after_it() {
        let value = || Outcome { second: 2, first: 1 };
        let (texts, structured) = shown(ToolReply::json(Some("A note.".to_owned()), value()));
        assert_eq!(texts, [r#"{"second":2,"first":1}"#, "A note."]);
        assert_eq!(structured, json!({ "first": 1, "second": 2 }));
        assert_eq!(shown(ToolReply::json(None, value())).0.len(), 1);
    }

    #[test]
    fn empty_texts_are_left_out_and_images_follow_the_texts() {
        let texts = ["a", "", "b"].map(str::to_owned);
        let reply = ToolReply::texts(texts, 7).with([ContentBlock::image("AA==", "image/png")]);
        assert_eq!(shown(reply), (vec!["a".to_owned(), "b".to_owned(), "(image)".to_owned()], json!(7)));
    }

    #[test]
    fn a_mapped_reply_keeps_its_texts_and_its_note() {
        let reply = ToolReply::json(Some("note".to_owned()), 7).map(|number| vec![number]);
        assert_eq!(shown(reply), (vec!["[7]".to_owned(), "note".to_owned()], json!([7])));
    }
}
