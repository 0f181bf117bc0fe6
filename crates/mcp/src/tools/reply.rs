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
