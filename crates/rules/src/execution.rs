//! The defaults and ranges of a command.
//!
//! As with create, the server checks types and this module checks values.

pub mod code;
pub mod detached;
pub mod environment;
pub mod outcome;
pub mod retention;
pub mod signals;

use api::bounds::{COMMAND_BYTES, EXECUTE_TIMEOUT_MS};
use api::{ExecuteBody, ExecuteRequest};

use crate::config::error::ConfigError;
use crate::config::{Range, absolute_path, env, integer};

/// Ranges and defaults of execute. [`ExecuteRules::default`] is the documented API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecuteRules {
    pub command_bytes_max: usize,
    pub timeout_ms: Range<u64>,
}

impl Default for ExecuteRules {
    fn default() -> Self {
        Self { command_bytes_max: COMMAND_BYTES, timeout_ms: EXECUTE_TIMEOUT_MS }
    }
}

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteRefusal {
    /// `COMMAND_TOO_LONG`; counted in bytes of UTF-8.
    #[error(
        "command is {bytes} bytes long; allowed: at most {most} bytes; send a longer script on stdin: 'bash -s'"
    )]
    CommandTooLong { bytes: usize, most: usize },
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// Most bytes in the name of a user.
const USER_BYTES: usize = 256;

/// Checks what was given and adds the defaults.
pub fn execute_request(body: ExecuteBody, rules: &ExecuteRules) -> Result<ExecuteRequest, ExecuteRefusal> {
    let (bytes, most) = (body.command.len(), rules.command_bytes_max);
    if bytes > most {
        return Err(ExecuteRefusal::CommandTooLong { bytes, most });
    }
    if body.command.contains('\0') {
        return Err(ConfigError::text("command", &body.command, "text without NUL").into());
    }
    Ok(ExecuteRequest {
        command: body.command,
        cwd: body.cwd.map(|path| absolute_path("cwd", path)).transpose()?,
        env: env(body.env.unwrap_or_default())?,
        timeout_ms: integer("timeoutMs", body.timeout_ms, rules.timeout_ms)?,
        stdin: body.stdin,
        auto_resume: body.auto_resume.unwrap_or(true),
        // Comes from a header.
        run_id: None,
        user: body.user.map(user).transpose()?,
    })
}

fn user(name: String) -> Result<String, ConfigError> {
    let is_allowed = |char: char| !char.is_ascii_control() && char != ':';
    if (1..=USER_BYTES).contains(&name.len()) && name.chars().all(is_allowed) {
        return Ok(name);
    }
    let allowed = format!(
        "the name or the number of a user: 1 to {USER_BYTES} bytes without ':' and control characters; its group is that of the user"
    );
    Err(ConfigError::text("user", &name, allowed))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Integer;

    fn given(change: impl FnOnce(&mut ExecuteBody)) -> Result<ExecuteRequest, ExecuteRefusal> {
        let mut input = ExecuteBody { command: "true".into(), ..ExecuteBody::default() };
        change(&mut input);
        execute_request(input, &ExecuteRules::default())
    }

    #[test]
    fn a_command_alone_gets_every_default() {
        let expected = ExecuteRequest {
            command: "true".into(),
            cwd: None,
            env: BTreeMap::new(),
            timeout_ms: 60_000,
            stdin: None,
            auto_resume: true,
            run_id: None,
            user: None,
        };
        assert_eq!(given(|_| {}), Ok(expected));
    }

    #[test]
    fn all_fields_are_read() {
        let request = given(|input| {
            input.cwd = Some("/tmp".into());
            input.env = Some([("A".to_owned(), "1".to_owned())].into());
            input.timeout_ms = Some(300_000);
            input.stdin = Some("in\0put".into());
            input.auto_resume = Some(false);
            input.user = Some("user".into());
        })
        .unwrap();
        assert_eq!(request.user.as_deref(), Some("user"));
        assert_eq!((request.cwd.as_deref(), request.env["A"].as_str()), (Some("/tmp"), "1"));
        assert_eq!((request.timeout_ms, request.stdin.as_deref()), (300_000, Some("in\0put")));
        assert!(!request.auto_resume);
    }

    #[test]
    fn a_user_has_a_name() {
        for wrong in ["", "a:b", "a\0", "a\n", "a\u{1b}", "\u{7f}", &"x".repeat(257)] {
            let refusal = given(|input| input.user = Some(wrong.to_owned())).unwrap_err();
            assert!(matches!(refusal, ExecuteRefusal::Invalid(error) if error.field == "user"), "{wrong}");
        }
    }

    #[test]
    fn length_is_counted_in_bytes() {
        assert!(given(|input| input.command = "x".repeat(65_536)).is_ok());
        let refusal = given(|input| input.command = "x".repeat(65_537)).unwrap_err();
        assert_eq!(refusal, ExecuteRefusal::CommandTooLong { bytes: 65_537, most: 65_536 });
        assert!(refusal.to_string().starts_with("command is 65537 bytes long; allowed: at most 65536 bytes"));
        let characters = given(|input| input.command = "€".repeat(21_846)).unwrap_err();
        assert_eq!(characters, ExecuteRefusal::CommandTooLong { bytes: 65_538, most: 65_536 });
        assert!(given(|input| input.command = String::new()).is_ok());
    }

    #[test]
    fn values_out_of_range_are_invalid() {
        for timeout_ms in [0, -1, 300_001, Integer::MAX] {
            let refusal = given(|input| input.timeout_ms = Some(timeout_ms)).unwrap_err().to_string();
            assert_eq!(refusal, format!("timeoutMs is {timeout_ms}; allowed: 1 to 300000"));
        }
        assert!(given(|input| input.timeout_ms = Some(1)).is_ok());
        for refused in [
            given(|input| input.command = "a\0b".into()),
            given(|input| input.cwd = Some("relative".into())),
            given(|input| input.cwd = Some(String::new())),
            given(|input| input.env = Some([("=".to_owned(), String::new())].into())),
        ] {
            assert!(matches!(refused, Err(ExecuteRefusal::Invalid(_))), "{refused:?}");
        }
    }
}
