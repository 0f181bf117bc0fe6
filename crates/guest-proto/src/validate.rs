//! Validation of messages, at each encode and decode.

use crate::attributes::{check_list, check_name};
use crate::{
    AttributePrefix, Attributes, ExecSpec, FileRequest, MAX_ARGS, MAX_DATA, MAX_DIRS, MAX_ENTRIES, MAX_ENV,
    MAX_HOST_NAME, MAX_MESSAGE, MAX_OPS, MAX_PATH, MAX_STRING, MAX_USER, MAX_WINDOW, MODE_BITS, ProtoError,
    TerminalSize, ToGuest, ToHost,
};

/// Checks a message for the agent.
pub(crate) fn to_guest(message: &ToGuest<'_>) -> Result<(), ProtoError> {
    match message {
        ToGuest::Hello { version, min_version } => {
            if *min_version == 0 || version < min_version {
                return Err(invalid("version", "is not a range that starts at 1 or later"));
            }
            Ok(())
        }
        ToGuest::Setup { dirs, .. } => {
            at_most("the list of directories", dirs.len(), MAX_DIRS)?;
            dirs.iter().try_for_each(|dir| path("a directory", dir))
        }
        ToGuest::Exec { spec, window: size, .. } => {
            window(*size)?;
            exec(spec)?;
            path("the working directory", spec.cwd)
        }
        ToGuest::ExecAs { spec, run_as, window: size, .. } => {
            window(*size)?;
            user(run_as.user)?;
            exec(spec)?;
            text("the working directory", spec.cwd, MAX_PATH)
        }
        ToGuest::StartDetachedAs { spec, run_as, terminal, .. } => {
            terminal.map_or(Ok(()), terminal_size)?;
            user(run_as.user)?;
            exec(spec)?;
            text("the working directory", spec.cwd, MAX_PATH)
        }
        ToGuest::FileAs { user: owner, request, window: size, .. } => {
            window(*size)?;
            user(owner)?;
            file(request, users_path)
        }
        ToGuest::Dial { port, window: size, .. } => {
            if *port == 0 {
                return Err(invalid("the port", "is 0; allowed: 1 to 65535"));
            }
            window(*size)
        }
        ToGuest::Data { bytes, .. } => at_most("data", bytes.len(), MAX_DATA),
        ToGuest::Credit { bytes, .. } => credit(*bytes),
        ToGuest::Signal { signal, .. } => {
            if !(1..=64).contains(signal) {
                return Err(invalid("the signal", "is not from 1 to 64"));
            }
            Ok(())
        }
        ToGuest::File { request, window: size, .. } => {
            window(*size)?;
            file(request, raw_path)
        }
        ToGuest::StartDetached { spec, terminal, .. } => {
            terminal.map_or(Ok(()), terminal_size)?;
            exec(spec)?;
            path("the working directory", spec.cwd)
        }
        ToGuest::Resize { size, .. } => terminal_size(*size),
        ToGuest::Adopt { host_name, .. } => name("the host name", host_name, MAX_HOST_NAME),
        ToGuest::Attach { .. } | ToGuest::Release { .. } | ToGuest::Suspend | ToGuest::Continue => Ok(()),
        ToGuest::Eof { .. } | ToGuest::Kill { .. } | ToGuest::Close { .. } | ToGuest::Ping { .. } => Ok(()),
    }
}

/// Checks a message for the host.
pub(crate) fn to_host(message: &ToHost<'_>) -> Result<(), ProtoError> {
    match message {
        ToHost::Welcome { agent_version, ops, .. } => {
            at_most("the agent's version", agent_version.len(), MAX_MESSAGE)?;
            at_most("the list of operations", ops.len(), MAX_OPS)
        }
        ToHost::Started { window: size, .. }
        | ToHost::Opened { window: size, .. }
        | ToHost::Attached { window: size, .. } => window(*size),
        ToHost::Data { bytes, .. } => at_most("data", bytes.len(), MAX_DATA),
        ToHost::Credit { bytes, .. } => credit(*bytes),
        ToHost::Refused { message, .. } => at_most("a message", message.len(), MAX_MESSAGE),
        ToHost::Bye { reason } => at_most("a reason", reason.len(), MAX_MESSAGE),
        ToHost::Running { .. } | ToHost::Suspended => Ok(()),
        ToHost::Eof { .. } | ToHost::Exited { .. } | ToHost::Done { .. } | ToHost::Pong { .. } => Ok(()),
    }
}

fn exec(spec: &ExecSpec<'_>) -> Result<(), ProtoError> {
    if spec.argv.first().is_none_or(|program| program.is_empty()) {
        return Err(invalid("the command", "names no program"));
    }
    at_most("the list of arguments", spec.argv.len(), MAX_ARGS)?;
    for arg in &spec.argv {
        text("an argument", arg, MAX_STRING)?;
    }
    at_most("the environment", spec.env.len(), MAX_ENV)?;
    for (name, value) in &spec.env {
        if name.is_empty() || name.contains('=') {
            return Err(invalid("the name of a variable", "is empty or has a '='"));
        }
        text("the name of a variable", name, MAX_STRING)?;
        text("the value of a variable", value, MAX_STRING.saturating_sub(name.len() + 1))?;
    }
    Ok(())
}

fn file(
    request: &FileRequest<'_>,
    raw_path: impl Fn(&[u8]) -> Result<(), ProtoError>,
) -> Result<(), ProtoError> {
    match request {
        FileRequest::Read { path, .. }
        | FileRequest::Stat { path, .. }
        | FileRequest::Delete { path, .. }
        | FileRequest::Pack { path }
        | FileRequest::Unpack { path } => raw_path(path),
        FileRequest::List { path, limit, .. } => {
            if !(1..=MAX_ENTRIES).contains(limit) {
                return Err(invalid("the limit", "is not from 1 to 1000"));
            }
            raw_path(path)
        }
        FileRequest::Write { path, mode, .. } | FileRequest::MakeDir { path, mode, .. } => {
            if mode.is_some_and(|mode| mode & !MODE_BITS != 0) {
                return Err(invalid("the mode", "has bits above 0o7777"));
            }
            raw_path(path)
        }
        FileRequest::Move { from, to, .. } | FileRequest::Rename { from, to } => {
            raw_path(from).and_then(|()| raw_path(to))
        }
        FileRequest::Describe { path, attributes: prefix } => {
            prefix.map_or(Ok(()), attribute_prefix)?;
            raw_path(path)
        }
        FileRequest::ListTree { path, depth, attributes: prefix } => {
            if *depth == 0 {
                return Err(invalid("the depth", "is 0"));
            }
            prefix.map_or(Ok(()), attribute_prefix)?;
            raw_path(path)
        }
        FileRequest::WriteInPlace { path, attributes: list } => {
            list.as_ref().map_or(Ok(()), attributes)?;
            raw_path(path)
        }
        FileRequest::SetAttributes { path, attributes: list } => {
            attributes(list)?;
            raw_path(path)
        }
        FileRequest::MakeDirs { path } | FileRequest::Watch { path, .. } => raw_path(path),
        FileRequest::CreateUser { name, uid } => {
            user(name)?;
            if *uid == 0 || name.contains([':', '/', '\n', ',']) {
                return Err(invalid("the user", "has the number 0, or a name that /etc/passwd cannot hold"));
            }
            Ok(())
        }
        FileRequest::Sync => Ok(()),
    }
}

/// A path that may be relative to a user's home.
fn users_path(path: &[u8]) -> Result<(), ProtoError> {
    if path.contains(&0) {
        return Err(invalid("a path", "has a NUL byte"));
    }
    at_most("a path", path.len(), MAX_PATH)
}

fn user(user: &str) -> Result<(), ProtoError> {
    name("the name of a user", user, MAX_USER)
}

fn name(field: &'static str, name: &str, max: usize) -> Result<(), ProtoError> {
    if name.is_empty() {
        return Err(invalid(field, "is empty"));
    }
    text(field, name, max)
}

fn attribute_prefix(prefix: AttributePrefix<'_>) -> Result<(), ProtoError> {
    check_name("the prefix of attributes", prefix)
}

fn attributes(attributes: &Attributes<'_>) -> Result<(), ProtoError> {
    attribute_prefix(attributes.prefix)?;
    check_list(&attributes.pairs)
}

/// A path of arbitrary bytes.
fn raw_path(path: &[u8]) -> Result<(), ProtoError> {
    if !path.starts_with(b"/") {
        return Err(invalid("a path", "is not absolute"));
    }
    if path.contains(&0) {
        return Err(invalid("a path", "has a NUL byte"));
    }
    at_most("a path", path.len(), MAX_PATH)
}

fn path(field: &'static str, path: &str) -> Result<(), ProtoError> {
    if !path.starts_with('/') {
        return Err(invalid(field, "is not an absolute path"));
    }
    text(field, path, MAX_PATH)
}

fn text(field: &'static str, text: &str, max: usize) -> Result<(), ProtoError> {
    if text.as_bytes().contains(&0) {
        return Err(invalid(field, "has a NUL byte"));
    }
    at_most(field, text.len(), max)
}

fn terminal_size(size: TerminalSize) -> Result<(), ProtoError> {
    if size.fits() {
        Ok(())
    } else {
        Err(invalid("the size of a terminal", "is not from 1 to 1000 columns and rows"))
    }
}

fn window(bytes: u32) -> Result<(), ProtoError> {
    at_most("a window", bytes as usize, MAX_WINDOW as usize)
}

fn credit(bytes: u32) -> Result<(), ProtoError> {
    if bytes == 0 {
        return Err(invalid("a credit", "is 0"));
    }
    at_most("a credit", bytes as usize, MAX_WINDOW as usize)
}

fn at_most(field: &'static str, got: usize, max: usize) -> Result<(), ProtoError> {
    if got > max {
        return Err(ProtoError::TooMany { field, got, max });
    }
    Ok(())
}

fn invalid(field: &'static str, reason: &'static str) -> ProtoError {
    ProtoError::Invalid { field, reason }
}
