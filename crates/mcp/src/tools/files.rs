//! `read_file`, `write_file` and `list_files`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandboxd_client::{FileEntry, FileType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reply::ToolReply;
use super::schema::{self, Effect};
use super::shared::SandboxReference;
use super::{Declared, ToolCall, within};
use crate::failure::ToolFailure;

/// The bytes of a file in one result.
const PAGE: u64 = 32 << 10;
const LARGEST_PAGE: u64 = 64 << 10;
/// Below the limits of the transports on a message, also if every character is escaped.
const LONGEST_CONTENT: usize = 1 << 20;
const ENTRIES: u64 = 100;
const MOST_ENTRIES: u64 = 100;

/// The last offset that JSON numbers can hold exactly.
const LARGEST_OFFSET: u64 = 1 << 53;

/// Read a file in a sandbox, at most 64 KiB at a time. If nextOffset is in the result, the file goes on: call again with it as
/// offset. Text is returned as it is, other bytes as base64.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadFile {
    /// The file. A relative path starts at the working directory of the sandbox.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// First byte to read. Default: 0.
    #[serde(default)]
    #[schemars(range(max = LARGEST_OFFSET))]
    offset: u64,
    /// Most bytes to read. Default: 32768.
    #[schemars(range(min = 4, max = LARGEST_PAGE))]
    limit: Option<u64>,
    sandbox_id: Option<SandboxReference>,
}

impl Declared for ReadFile {
    const NAME: &'static str = "read_file";
    const TITLE: &'static str = "Read a file";
    const EFFECT: Effect = Effect::Reads;
    type Output = FileRead;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<FileRead>, ToolFailure> {
        read(call, self).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// A part of a file.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileRead {
    /// The sandbox.
    sandbox_id: String,
    /// The file.
    path: String,
    /// The content, in the encoding below.
    content: String,
    encoding: Encoding,
    /// The first byte of content in the file.
    offset: u64,
    /// The size of the file.
    size_bytes: u64,
    /// If the file goes on: the offset of the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

async fn read(call: &ToolCall, arguments: ReadFile) -> Result<ToolReply<FileRead>, ToolFailure> {
    let ReadFile { path, offset, limit, sandbox_id } = arguments;
    let limit = within("limit", limit.unwrap_or(PAGE), 4, LARGEST_PAGE)?;
    let target = call.target(sandbox_id.as_deref()).await?;
    let files = target.sandbox.files();
    let stat = match files.stat_target(&path).await {
        Ok(stat) => stat,
        Err(error) => return Err(call.failed(&target.sandbox, error).await),
    };
    if stat.kind == FileType::Other {
        return Err(ToolFailure::new(
            format!("{path} is a device, a pipe or a socket."),
            "Use run_command to read from it, with a limit such as head -c.",
        ));
    }
    let bytes = if stat.size_bytes > 0 && offset >= stat.size_bytes {
        Vec::new()
    } else {
        match read_at_most(&target.sandbox, &path, offset, limit).await {
            Ok(bytes) => bytes,
            Err(error) => return Err(call.failed(&target.sandbox, error).await),
        }
    };
    let length = bytes.len() as u64;
    let end = offset.saturating_add(length);
    // Files of /proc have the size 0.
    let goes_on = if stat.size_bytes == 0 { length == limit } else { end < stat.size_bytes };
    let (content, encoding, used) = decode(bytes, goes_on);
    let next = offset.saturating_add(used as u64);
    let next_offset = (goes_on || next < end).then_some(next);
    let size_bytes = if length == 0 { stat.size_bytes } else { stat.size_bytes.max(end) };
    let sandbox_id = target.sandbox.id().to_string();
    let read = FileRead { sandbox_id, path, content, encoding, offset, size_bytes, next_offset };
    let status = status(&read);
    Ok(ToolReply::texts([read.content.clone(), status, target.note.unwrap_or_default()], read))
}

/// What the model has to know of a page of a file.
fn status(read: &FileRead) -> String {
    let mut parts = Vec::new();
    if read.encoding == Encoding::Base64 {
        parts.push("The content is not UTF-8; it is encoded as base64.".to_owned());
    }
    match read.next_offset {
        Some(next) => parts.push(format!(
            "Bytes {} to {next} of {}; the file goes on: call read_file with offset {next}.",
            read.offset, read.size_bytes
        )),
        None if read.content.is_empty() && read.size_bytes == 0 => {
            parts.push("The file is empty.".to_owned());
        }
        None if read.content.is_empty() => {
            parts.push(format!(
                "The file ends before offset {}; it has {} bytes.",
                read.offset, read.size_bytes
            ));
        }
        None => {}
    }
    parts.join(" ")
}

async fn read_at_most(
    sandbox: &sandboxd_client::Sandbox,
    path: &str,
    offset: u64,
    limit: u64,
) -> sandboxd_client::Result<Vec<u8>> {
    use futures_util::TryStreamExt;
    let mut read = sandbox.files().read(path);
    if offset > 0 {
        // An empty file has no range.
        read = read.range(offset..offset.saturating_add(limit));
    }
    let mut stream = read.stream().await?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < limit
        && let Some(piece) = stream.try_next().await?
    {
        bytes.extend_from_slice(&piece);
    }
    bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(bytes)
}

/// The content as text, without a character that the page cuts, or as base64; and the number of bytes that it holds.
fn decode(bytes: Vec<u8>, goes_on: bool) -> (String, Encoding, usize) {
    let length = bytes.len();
    match String::from_utf8(bytes) {
        Ok(text) => (text, Encoding::Utf8, length),
        Err(error) => {
            let fault = error.utf8_error();
            let valid = fault.valid_up_to();
            let mut bytes = error.into_bytes();
            // Cut at the end of the page, and not invalid.
            if fault.error_len().is_none() && goes_on && valid > 0 {
                bytes.truncate(valid);
                return (String::from_utf8_lossy(&bytes).into_owned(), Encoding::Utf8, valid);
            }
            (STANDARD.encode(&bytes), Encoding::Base64, length)
        }
    }
}

/// Write a file in a sandbox: create it, with the directories above it, or replace its content. At most 1 MiB; make larger files with
/// run_command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteFile {
    /// The file. A relative path starts at the working directory of the sandbox.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// The whole content of the file.
    #[schemars(length(max = LONGEST_CONTENT))]
    content: String,
    /// How content is encoded. Default: utf-8.
    #[serde(default)]
    encoding: Encoding,
    /// Whether the file is a program. Default: false.
    #[serde(default)]
    executable: bool,
    sandbox_id: Option<SandboxReference>,
}

impl Declared for WriteFile {
    const NAME: &'static str = "write_file";
    const TITLE: &'static str = "Write a file";
    const EFFECT: Effect = Effect::Replaces;
    type Output = FileWritten;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<FileWritten>, ToolFailure> {
        write(call, self).await
    }
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileWritten {
    /// The sandbox.
    sandbox_id: String,
    /// The file.
    path: String,
    /// The size of the file.
    size_bytes: u64,
}

async fn write(call: &ToolCall, arguments: WriteFile) -> Result<ToolReply<FileWritten>, ToolFailure> {
    let length = arguments.content.len();
    if length > LONGEST_CONTENT {
        return Err(ToolFailure::new(
            format!("content has {length} bytes; it must have at most {LONGEST_CONTENT}."),
            "Write several smaller files and join them with run_command, or create the file with run_command.",
        ));
    }
    let bytes = match arguments.encoding {
        Encoding::Utf8 => arguments.content.into_bytes(),
        Encoding::Base64 => STANDARD
            .decode(arguments.content.as_bytes())
            .map_err(|error| ToolFailure::argument(format!("content is not base64: {error}.")))?,
    };
    let size_bytes = bytes.len() as u64;
    let target = call.target(arguments.sandbox_id.as_deref()).await?;
    let mut write = target.sandbox.files().write(&arguments.path, bytes).parents();
    if arguments.executable {
        write = write.mode(0o755);
    }
    if let Err(error) = write.await {
        return Err(call.failed(&target.sandbox, error).await);
    }
    let sandbox_id = target.sandbox.id().to_string();
    Ok(ToolReply::json(target.note, FileWritten { sandbox_id, path: arguments.path, size_bytes }))
}

/// List the entries of a directory in a sandbox, at most 100 at a time. If nextOffset is in the result, there are more: call again
/// with it as offset.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListFiles {
    /// The directory. A relative path starts at the working directory of the sandbox. Default: that directory.
    #[schemars(length(min = 1, max = 4096))]
    path: Option<String>,
    /// Entries to skip. Default: 0.
    #[serde(default)]
    #[schemars(range(max = 1_000_000_000))]
    offset: u64,
    /// Most entries in the result. Default: 100.
    #[schemars(range(min = 1, max = MOST_ENTRIES))]
    limit: Option<u64>,
    sandbox_id: Option<SandboxReference>,
}

impl Declared for ListFiles {
    const NAME: &'static str = "list_files";
    const TITLE: &'static str = "List files";
    const EFFECT: Effect = Effect::Reads;
    type Output = FilesListed;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<FilesListed>, ToolFailure> {
        list(call, self).await
    }
}

/// Entries of a directory.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesListed {
    /// The sandbox.
    sandbox_id: String,
    entries: Vec<ListedFile>,
    /// Number of entries of the directory.
    total: u64,
    /// If there are more: the offset of the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListedFile {
    /// The name.
    name: String,
    #[serde(rename = "type")]
    #[schemars(schema_with = "schema::file_type")]
    kind: FileType,
    size_bytes: u64,
    /// Permissions, in octal digits.
    mode: String,
    /// When the content last changed.
    #[schemars(with = "String")]
    modified_at: sandboxd_client::Timestamp,
}

impl From<FileEntry> for ListedFile {
    fn from(entry: FileEntry) -> Self {
        let FileEntry { name, kind, size_bytes, mode, modified_at, .. } = entry;
        Self { name, kind, size_bytes, mode, modified_at }
    }
}

async fn list(call: &ToolCall, arguments: ListFiles) -> Result<ToolReply<FilesListed>, ToolFailure> {
    let ListFiles { path, offset, limit, sandbox_id } = arguments;
    let limit = within("limit", limit.unwrap_or(ENTRIES), 1, MOST_ENTRIES)?;
    let target = call.target(sandbox_id.as_deref()).await?;
    let list = target.sandbox.files().list(path.as_deref().unwrap_or("."));
    let page = list.page_size(u32::try_from(limit).unwrap_or(u32::MAX)).page(offset).await;
    let page = match page {
        Ok(page) => page,
        Err(error) => return Err(call.failed(&target.sandbox, error).await),
    };
    let end = offset.saturating_add(page.data.len() as u64);
    let listed = FilesListed {
        sandbox_id: target.sandbox.id().to_string(),
        entries: page.data.into_iter().map(ListedFile::from).collect(),
        total: page.pagination.total,
        next_offset: page.pagination.has_more.then_some(end),
    };
    Ok(ToolReply::json(target.note, listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_the_page_cuts_is_left_for_the_next_one() {
        for (bytes, goes_on, content, encoding, used) in [
            (&b"abc"[..], false, "abc", Encoding::Utf8, 3),
            (b"abc", true, "abc", Encoding::Utf8, 3),
            (b"a\xc3", true, "a", Encoding::Utf8, 1),
            // At its end, the file is not text.
            (b"a\xc3", false, "YcM=", Encoding::Base64, 2),
            (b"\xc3", true, "ww==", Encoding::Base64, 1),
            (b"a\xff\xc3", true, "Yf/D", Encoding::Base64, 3),
            (b"", true, "", Encoding::Utf8, 0),
        ] {
            assert_eq!(decode(bytes.to_vec(), goes_on), (content.to_owned(), encoding, used), "{bytes:?}");
        }
    }

    #[test]
    fn pages_of_any_size_are_the_whole_text() {
        let text = "aä€😀\n".repeat(20);
        for limit in 4..=9 {
            let (mut read, mut offset) = (String::new(), 0);
            while offset < text.len() {
                let end = text.len().min(offset + limit);
                let (content, encoding, used) =
                    decode(text.as_bytes()[offset..end].to_vec(), end < text.len());
                assert_eq!(encoding, Encoding::Utf8, "{limit} bytes at {offset}");
                read.push_str(&content);
                offset += used;
            }
            assert_eq!(read, text, "{limit}");
        }
    }

    #[test]
    fn the_status_says_how_to_go_on() {
        let read = |content: &str, encoding, offset, size_bytes, next_offset| {
            let (sandbox_id, path) = ("sb_1".to_owned(), "/a".to_owned());
            status(&FileRead {
                sandbox_id,
                path,
                content: content.to_owned(),
                encoding,
                offset,
                size_bytes,
                next_offset,
            })
        };
        assert_eq!(read("a", Encoding::Utf8, 0, 1, None), "");
        assert_eq!(read("", Encoding::Utf8, 0, 0, None), "The file is empty.");
        assert_eq!(read("", Encoding::Utf8, 9, 5, None), "The file ends before offset 9; it has 5 bytes.");
        let goes_on = "Bytes 4 to 8 of 20; the file goes on: call read_file with offset 8.";
        assert_eq!(read("abcd", Encoding::Utf8, 4, 20, Some(8)), goes_on);
        let base64 = "The content is not UTF-8; it is encoded as base64.";
        assert_eq!(read("/w==", Encoding::Base64, 0, 1, None), base64);
        assert_eq!(read("abcd", Encoding::Base64, 4, 20, Some(8)), format!("{base64} {goes_on}"));
    }
}
