//! The failure of a tool call, as the model gets it: what went wrong, and what to do next. A failure is the result of a tool and not
//! an error of the protocol, because hosts show results to the model.

use rmcp::model::{CallToolResult, ContentBlock};
use sandboxd_client::{Code, Error};

/// Longer messages are cut: an error may quote an argument.
const LONGEST_MESSAGE: usize = 2000;

/// Why a tool call failed.
#[derive(Debug)]
pub struct ToolFailure {
    message: String,
    remedy: Option<String>,
}

impl ToolFailure {
    /// The arguments of the call are invalid.
    pub fn argument(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            remedy: Some("Correct the arguments and call the tool again.".into()),
        }
    }

    /// A failure with what the model can do about it.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: Some(remedy.into()) }
    }

    /// The failure of a call that its client cancelled.
    pub fn cancelled() -> Self {
        Self { message: "The call was cancelled.".into(), remedy: None }
    }

    /// The result of a call that failed, which the model reads.
    pub fn into_result(self) -> CallToolResult {
        let mut text: String = self.message.chars().take(LONGEST_MESSAGE).collect();
        if let Some(remedy) = self.remedy {
            text.push('\n');
            text.push_str(&remedy);
        }
        CallToolResult::error(vec![ContentBlock::text(text)])
    }
}

impl From<Error> for ToolFailure {
    fn from(error: Error) -> Self {
        let message = format!("{}: {}", error.code(), error.message());
        Self { message, remedy: remedy(&error) }
    }
}

fn remedy(error: &Error) -> Option<String> {
    let text = match error.code() {
        Code::SandboxNotFound => {
            "The sandbox has ended, or the id is wrong. Call manage_sandboxes with the action list for the existing ones, or create_sandbox for a new one."
        }
        Code::InvalidState => {
            "The sandbox cannot do this in its current state; a terminated sandbox cannot be used again. Call manage_sandboxes with the action list to see its state, or create_sandbox for a new one."
        }
        Code::FileNotFound => {
            "Call list_files on the parent directory to see what exists. A relative path starts at the working directory of the sandbox."
        }
        Code::NotAFile => "The path is a directory. Call list_files to see its entries.",
        Code::NotADirectory => "The path is a file. Call read_file to read it.",
        Code::PermissionDenied => "Choose another path, or change its permissions with run_command.",
        Code::ExecutionNotFound => {
            "The cursor is from a command that no longer exists. Run the command again."
        }
        Code::PortNotAllowed => {
            "The sandbox was created without permission for this port. Choose another port."
        }
        Code::Unauthorized => "Ask the user to configure a valid API key for this MCP server.",
        Code::Forbidden => "Ask the user for an API key with the scope that the message names.",
        Code::SnapshotNotFound => {
            "The snapshot was deleted, or the id is wrong. Call manage_snapshots with the action list for the existing ones."
        }
        Code::TemplateNotFound => {
            "The template was deleted, or the id is wrong. Call manage_templates with the action list for the existing ones."
        }
        Code::IsolationMismatch => {
            "To copy only files, call the tool again without memory. If create_sandbox failed, set cold to true to start without the stored processes."
        }
        Code::QuotaExceeded => {
            "Remove what is not needed, with the action terminate of manage_sandboxes, or the action delete of manage_snapshots or manage_templates. Then try again."
        }
        Code::DiskFull => "The disk of the sandbox is full. Delete files with run_command.",
        Code::NetworkError => {
            "The sandbox service was not reached. Try again once; if it fails again, ask the user whether the service is running."
        }
        Code::RateLimited | Code::ResourceExhausted => {
            let seconds = error.retry_after().map_or(10, |wait| wait.as_secs().max(1));
            return Some(format!("Wait {seconds} seconds, then call the tool again."));
        }
        Code::InvalidRequest | Code::InvalidConfig | Code::InvalidArgument | Code::CommandTooLong => {
            "Correct the arguments and call the tool again."
        }
        Code::InternalError => "Try again once. If it fails again, report the message to the user.",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(failure: ToolFailure) -> (String, serde_json::Value) {
        let result = serde_json::to_value(failure.into_result()).unwrap();
        (result["content"][0]["text"].as_str().unwrap().to_owned(), result["isError"].clone())
    }

    #[test]
    fn a_failure_is_an_error_with_what_to_do_on_a_line_of_its_own() {
        let (text, is_error) = shown(ToolFailure::new("It failed.", "Do this."));
        assert_eq!((text.as_str(), is_error), ("It failed.\nDo this.", true.into()));
        assert_eq!(shown(ToolFailure::cancelled()).0, "The call was cancelled.");
        let argument = shown(ToolFailure::argument("limit is 0.")).0;
        assert_eq!(argument, "limit is 0.\nCorrect the arguments and call the tool again.");
    }

    #[test]
    fn a_long_message_is_cut_and_keeps_its_remedy() {
        let text = shown(ToolFailure::new("ä".repeat(LONGEST_MESSAGE + 1), "Do this.")).0;
        assert_eq!(text, format!("{}\nDo this.", "ä".repeat(LONGEST_MESSAGE)));
    }

    #[test]
    fn the_error_of_a_call_has_its_code_and_the_remedy_for_it() {
        let client = sandboxd_client::Client::builder().url("http://127.0.0.1:9").key("any").build().unwrap();
        let text = shown(client.sandbox("no id").unwrap_err().into()).0;
        assert!(text.starts_with("INVALID_ARGUMENT: 'no id' is not a sandbox id"), "{text}");
        assert!(text.ends_with("\nCorrect the arguments and call the tool again."), "{text}");
        let unusable = sandboxd_client::Client::builder().url("ftp://a").key("any").build().err().unwrap();
        let text = shown(unusable.into()).0;
        // The model cannot change the configuration.
        assert!(text.starts_with("CLIENT_CONFIGURATION: ") && !text.contains('\n'), "{text}");
    }
}
