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
        ToGuest::Hello { version, min_version } => refuse_if(
            *min_version == 0 || version < min_version,
            "version",
            "is not a range that starts at 1 or later",
        ),
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
            refuse_if(*port == 0, "the port", "is 0; allowed: 1 to 65535")?;
            window(*size)
        }
        ToGuest::Data { bytes, .. } => at_most("data", bytes.len(), MAX_DATA),
        ToGuest::Credit { bytes, .. } => credit(*bytes),
        ToGuest::Signal { signal, .. } => {
            refuse_if(!(1..=64).contains(signal), "the signal", "is not from 1 to 64")
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
    refuse_if(spec.argv.first().is_none_or(|program| program.is_empty()), "the command", "names no program")?;
    at_most("the list of arguments", spec.argv.len(), MAX_ARGS)?;
    for arg in &spec.argv {
        text("an argument", arg, MAX_STRING)?;
    }
    at_most("the environment", spec.env.len(), MAX_ENV)?;
    for (name, value) in &spec.env {
        refuse_if(name.is_empty() || name.contains('='), "the name of a variable", "is empty or has a '='")?;
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
            refuse_if(!(1..=MAX_ENTRIES).contains(limit), "the limit", "is not from 1 to 1000")?;
            raw_path(path)
        }
        FileRequest::Write { path, mode, .. } | FileRequest::MakeDir { path, mode, .. } => {
            refuse_if(mode.is_some_and(|mode| mode & !MODE_BITS != 0), "the mode", "has bits above 0o7777")?;
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
            refuse_if(*depth == 0, "the depth", "is 0")?;
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
            refuse_if(
                *uid == 0 || name.contains([':', '/', '\n', ',']),
                "the user",
                "has the number 0, or a name that /etc/passwd cannot hold",
            )
        }
        FileRequest::Sync => Ok(()),
    }
}

/// A path that may be relative to a user's home.
fn users_path(path: &[u8]) -> Result<(), ProtoError> {
    refuse_if(path.contains(&0), "a path", "has a NUL byte")?;
    at_most("a path", path.len(), MAX_PATH)
}

fn user(user: &str) -> Result<(), ProtoError> {
    name("the name of a user", user, MAX_USER)
}

fn name(field: &'static str, name: &str, max: usize) -> Result<(), ProtoError> {
    refuse_if(name.is_empty(), field, "is empty")?;
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
    refuse_if(!path.starts_with(b"/"), "a path", "is not absolute")?;
    refuse_if(path.contains(&0), "a path", "has a NUL byte")?;
    at_most("a path", path.len(), MAX_PATH)
}

fn path(field: &'static str, path: &str) -> Result<(), ProtoError> {
    refuse_if(!path.starts_with('/'), field, "is not an absolute path")?;
    text(field, path, MAX_PATH)
}

fn text(field: &'static str, text: &str, max: usize) -> Result<(), ProtoError> {
    refuse_if(text.as_bytes().contains(&0), field, "has a NUL byte")?;
    at_most(field, text.len(), max)
}

fn terminal_size(size: TerminalSize) -> Result<(), ProtoError> {
    refuse_if(!size.fits(), "the size of a terminal", "is not from 1 to 1000 columns and rows")
}

fn window(bytes: u32) -> Result<(), ProtoError> {
    at_most("a window", bytes as usize, MAX_WINDOW as usize)
}

fn credit(bytes: u32) -> Result<(), ProtoError> {
    refuse_if(bytes == 0, "a credit", "is 0")?;
    at_most("a credit", bytes as usize, MAX_WINDOW as usize)
}

fn at_most(field: &'static str, got: usize, max: usize) -> Result<(), ProtoError> {
    if got > max {
        return Err(ProtoError::TooMany { field, got, max });
    }
    Ok(())
}

fn refuse_if(applies: bool, field: &'static str, reason: &'static str) -> Result<(), ProtoError> {
    if applies { Err(ProtoError::Invalid { field, reason }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewPrivileges, RunAs, StdinMode};

    fn spec<'a>(argv: Vec<&'a str>, env: Vec<(&'a str, &'a str)>, cwd: &'a str) -> ExecSpec<'a> {
        ExecSpec { argv, env, cwd, stdin: StdinMode::Null }
    }

    fn text_of(checked: Result<(), ProtoError>) -> String {
        checked.unwrap_err().to_string()
    }

    #[test]
    fn the_versions_of_a_hello_are_a_range_from_one_on() {
        let hello = |version, min_version| to_guest(&ToGuest::Hello { version, min_version }).is_ok();
        assert!(hello(1, 1) && hello(5, 1) && hello(u16::MAX, u16::MAX));
        assert!(!hello(0, 0) && !hello(5, 0) && !hello(4, 5));
    }

    #[test]
    fn arguments_and_variables_are_bounded_as_the_kernel_bounds_them() {
        let longest = "x".repeat(MAX_STRING);
        let longer = "x".repeat(MAX_STRING + 1);
        // `A=` is in front of the value.
        let (value, too_long) = (&longest[2..], &longest[1..]);
        let accepted = [
            spec(vec!["p"], vec![], "/"),
            spec(vec!["p", &longest], vec![("A", value)], "/"),
            spec(vec!["p"; MAX_ARGS], vec![("A", ""); MAX_ENV], "/"),
        ];
        for spec in &accepted {
            assert_eq!(exec(spec), Ok(()));
        }
        for (spec, part) in [
            (spec(vec![], vec![], "/"), "names no program"),
            (spec(vec![""], vec![], "/"), "names no program"),
            (spec(vec!["p", &longer], vec![], "/"), "an argument has 131072 elements"),
            (spec(vec!["p", "a\0b"], vec![], "/"), "an argument has a NUL byte"),
            (spec(vec!["p"; MAX_ARGS + 1], vec![], "/"), "the list of arguments has 4097"),
            (spec(vec!["p"], vec![("A", ""); MAX_ENV + 1], "/"), "the environment has 4097"),
            (spec(vec!["p"], vec![("A", too_long)], "/"), "the value of a variable has 131070"),
            (spec(vec!["p"], vec![("", "")], "/"), "is empty or has a '='"),
            (spec(vec!["p"], vec![("A=B", "")], "/"), "is empty or has a '='"),
            (spec(vec!["p"], vec![("A\0", "")], "/"), "the name of a variable has a NUL byte"),
            (spec(vec!["p"], vec![("A", "\0")], "/"), "the value of a variable has a NUL byte"),
        ] {
            let refused = text_of(exec(&spec));
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn only_on_behalf_of_a_user_a_directory_may_be_relative() {
        let run_as = RunAs { user: "user", new_privileges: NewPrivileges::Denied };
        let (op, window) = (1, 0);
        for (cwd, of_root, of_user) in
            [("/w", true, true), ("w", false, true), ("", false, true), ("/w\0", false, false)]
        {
            let spec = spec(vec!["p"], vec![], cwd);
            let root = [
                ToGuest::Exec { op, spec: spec.clone(), window },
                ToGuest::StartDetached { op, spec: spec.clone(), terminal: None },
            ];
            let user = [
                ToGuest::ExecAs { op, spec: spec.clone(), run_as, window },
                ToGuest::StartDetachedAs { op, spec, run_as, terminal: None },
            ];
            for (messages, fits) in [(root, of_root), (user, of_user)] {
                for message in &messages {
                    assert_eq!(to_guest(message).is_ok(), fits, "{cwd:?}: {message:?}");
                }
            }
        }
    }

    #[test]
    fn names_of_users_and_hosts_are_neither_empty_nor_too_long() {
        let user = |name: &str| {
            let request = FileRequest::Describe { path: b"", attributes: None };
            to_guest(&ToGuest::FileAs { op: 1, user: name, request, window: 0 }).is_ok()
        };
        let host = |name: &str| to_guest(&ToGuest::Adopt { op: 1, host_name: name }).is_ok();
        let name = |bytes| "x".repeat(bytes);
        assert!(user("a") && user(&name(MAX_USER)) && !user(&name(MAX_USER + 1)));
        assert!(host("a") && host(&name(MAX_HOST_NAME)) && !host(&name(MAX_HOST_NAME + 1)));
        for bad in ["", "a\0"] {
            assert!(!user(bad) && !host(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_created_user_fits_into_a_line_of_passwd_and_is_not_root() {
        let create = |name: &str, uid| file(&FileRequest::CreateUser { name, uid }, users_path).is_ok();
        assert!(create("user", 1000) && create("a.b-c_d", 1));
        assert!(!create("user", 0), "the number of root");
        for name in ["", "a:b", "a/b", "a\nb", "a,b", "a\0b"] {
            assert!(!create(name, 1000), "{name:?}");
        }
    }

    #[test]
    fn numbers_of_messages_are_within_their_bounds() {
        let window = |window| to_guest(&ToGuest::Dial { op: 1, port: 1, window }).is_ok();
        assert!(window(0) && window(MAX_WINDOW) && !window(MAX_WINDOW + 1));
        assert!(to_guest(&ToGuest::Dial { op: 1, port: 0, window: 0 }).is_err());
        let signal = |signal| to_guest(&ToGuest::Signal { op: 1, signal }).is_ok();
        assert_eq!([-1, 0, 1, 64, 65].map(signal), [false, false, true, true, false]);
        let channel = crate::Channel::Stdout;
        let credit = |bytes| {
            let guest = to_guest(&ToGuest::Credit { op: 1, channel, bytes }).is_ok();
            assert_eq!(guest, to_host(&ToHost::Credit { op: 1, bytes }).is_ok(), "{bytes}");
            guest
        };
        assert_eq!([0, 1, MAX_WINDOW, MAX_WINDOW + 1].map(credit), [false, true, true, false]);
        let size = |columns, rows| {
            let size = TerminalSize { columns, rows };
            to_guest(&ToGuest::Resize { op: 1, size }).is_ok()
        };
        assert!(size(1, 1) && size(1000, 1000));
        assert!(!size(0, 1) && !size(1, 0) && !size(1001, 1) && !size(1, 1001));
    }

    #[test]
    fn data_may_fill_a_frame_in_both_directions() {
        let bytes = vec![0; MAX_DATA + 1];
        let channel = crate::Channel::Stderr;
        for (bytes, fits) in [(&bytes[1..], true), (&bytes[..], false), (&[][..], true)] {
            assert_eq!(to_guest(&ToGuest::Data { op: 1, bytes }).is_ok(), fits);
            assert_eq!(to_host(&ToHost::Data { op: 1, channel, bytes }).is_ok(), fits);
        }
    }

    #[test]
    fn a_hostile_agent_cannot_send_long_texts_or_lists() {
        let text = "x".repeat(MAX_MESSAGE + 1);
        let kind = crate::RefusalKind::Failed;
        for (text, fits) in [(&text[1..], true), (&text[..], false)] {
            assert_eq!(to_host(&ToHost::Refused { op: 1, kind, message: text }).is_ok(), fits);
            assert_eq!(to_host(&ToHost::Bye { reason: text }).is_ok(), fits);
            let welcome = ToHost::Welcome { version: 1, agent_version: text, ops: vec![] };
            assert_eq!(to_host(&welcome).is_ok(), fits);
        }
        let welcome = |ops| to_host(&ToHost::Welcome { version: 1, agent_version: "", ops }).is_ok();
        assert!(welcome(vec![1; MAX_OPS]) && !welcome(vec![1; MAX_OPS + 1]));
        for window in [
            ToHost::Opened { op: 1, window: MAX_WINDOW + 1 },
            ToHost::Started { op: 1, pid: 1, window: u32::MAX },
        ] {
            assert_eq!(text_of(to_host(&window)).split(' ').take(2).collect::<Vec<_>>(), ["a", "window"]);
        }
    }

    #[test]
    fn directories_of_a_setup_are_absolute_and_few() {
        let setup = |dirs| to_guest(&ToGuest::Setup { op: 1, dirs }).is_ok();
        assert!(setup(vec![]) && setup(vec!["/a"; MAX_DIRS]));
        assert!(!setup(vec!["/a"; MAX_DIRS + 1]) && !setup(vec!["/a", "b"]) && !setup(vec!["/a\0"]));
        let longest = format!("/{}", "a".repeat(MAX_PATH - 1));
        let longer = format!("{longest}a");
        assert!(setup(vec![&longest]) && !setup(vec![&longer]));
    }

    #[test]
    fn paths_of_a_user_may_be_relative_and_others_not() {
        let longest = vec![b'/'; MAX_PATH];
        let longer = vec![b'/'; MAX_PATH + 1];
        for (path, raw, users) in [
            (&b"/a\xff"[..], true, true),
            (b"a", false, true),
            (b"", false, true),
            (b"/a\0", false, false),
            (&longest, true, true),
            (&longer, false, false),
        ] {
            let request = FileRequest::Unpack { path };
            assert_eq!(file(&request, raw_path).is_ok(), raw, "{}", path.len());
            assert_eq!(file(&request, users_path).is_ok(), users, "{}", path.len());
            // Both ends of a move count.
            let moves = [
                FileRequest::Move { from: path, to: b"/b", overwrite: false },
                FileRequest::Rename { from: b"/b", to: path },
            ];
            for request in &moves {
                assert_eq!(file(request, raw_path).is_ok(), raw, "{request:?}");
            }
        }
    }

    #[test]
    fn values_of_file_requests_are_bounded() {
        let path = &b"/a"[..];
        let is_valid = |request: &FileRequest<'_>| file(request, raw_path).is_ok();
        let list = |limit| is_valid(&FileRequest::List { path, offset: u64::MAX, limit });
        assert_eq!([0, 1, MAX_ENTRIES, MAX_ENTRIES + 1].map(list), [false, true, true, false]);
        for (mode, fits) in
            [(None, true), (Some(0o7777), true), (Some(0o10_000), false), (Some(u32::MAX), false)]
        {
            assert_eq!(is_valid(&FileRequest::Write { path, mode, parents: true }), fits, "{mode:?}");
            assert_eq!(is_valid(&FileRequest::MakeDir { path, mode, recursive: true }), fits, "{mode:?}");
        }
        let tree = |depth| is_valid(&FileRequest::ListTree { path, depth, attributes: None });
        assert_eq!([0, 1, u32::MAX].map(tree), [false, true, true]);
        let long = "p".repeat(256);
        for (prefix, fits) in [("", true), (&long[1..], true), (&long[..], false), ("a\0", false)] {
            let attributes = Some(prefix);
            assert_eq!(is_valid(&FileRequest::Describe { path, attributes }), fits, "{}", prefix.len());
            assert_eq!(is_valid(&FileRequest::ListTree { path, depth: 1, attributes }), fits);
        }
    }

    #[test]
    fn attributes_are_few_and_small() {
        let set = |pairs: Vec<(&'static str, &str)>| {
            let attributes = Attributes { prefix: "app.", pairs };
            file(&FileRequest::SetAttributes { path: b"/a", attributes }, raw_path).is_ok()
        };
        let value = "x".repeat(crate::MAX_ATTRIBUTE_BYTES);
        assert!(set(vec![]) && set(vec![("a", ""); crate::MAX_ATTRIBUTES]));
        assert!(!set(vec![("a", ""); crate::MAX_ATTRIBUTES + 1]));
        assert!(set(vec![("a", &value[1..])]) && !set(vec![("a", &value)]));
        // The sum of all counts.
        assert!(!set(vec![("a", &value[2..]), ("b", "x")]) && set(vec![("a", &value[2..]), ("b", "")]));
        assert!(!set(vec![("", "x")]) && !set(vec![("a\0", "x")]));
    }
}
