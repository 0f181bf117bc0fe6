//! The defaults and ranges of code for the interpreter, and of its contexts.

use api::bounds::CODE_BYTES;
use api::{CodeBody, CodeContextBody, CodeRequest};

use crate::ExecuteRules;
use crate::config::error::ConfigError;
use crate::config::{absolute_path, env, integer};

const NAME_CHARS: usize = 100;

/// Checks what was given and adds the defaults.
pub fn code_request(body: CodeBody, rules: &ExecuteRules) -> Result<CodeRequest, ConfigError> {
    let CodeBody { code, language, context_id, env: added, timeout_ms, auto_resume } = body;
    if code.len() > CODE_BYTES {
        let got = format!("{} bytes long", code.len());
        return Err(ConfigError::new(
            "code",
            got,
            format!("at most {CODE_BYTES} bytes; write more to a file"),
        ));
    }
    if code.contains('\0') {
        return Err(ConfigError::text("code", &code, "text without NUL"));
    }
    if let (Some(_), Some(language)) = (&context_id, &language) {
        let allowed = "no language, because the context in contextId has one";
        return Err(ConfigError::text("language", language, allowed));
    }
    if let Some(id) = context_id.as_ref().filter(|id| !is_context_id(id)) {
        return Err(ConfigError::text("contextId", id, "letters, digits and hyphens, at most 100"));
    }
    Ok(CodeRequest {
        code,
        language: language.map(check_language).transpose()?,
        context_id,
        env: env(added.unwrap_or_default())?,
        timeout_ms: integer("timeoutMs", timeout_ms, rules.timeout_ms)?,
        auto_resume: auto_resume.unwrap_or(true),
        // Comes from a header.
        run_id: None,
    })
}

/// Checks a request for a new context.
pub fn code_context(body: CodeContextBody) -> Result<CodeContextBody, ConfigError> {
    Ok(CodeContextBody {
        language: body.language.map(check_language).transpose()?,
        cwd: body.cwd.map(|path| absolute_path("cwd", path)).transpose()?,
    })
}

/// Whether a text can be the id of a context. It becomes part of a path.
pub fn is_context_id(id: &str) -> bool {
    (1..=NAME_CHARS).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn check_language(language: String) -> Result<String, ConfigError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+#".contains(&byte);
    if (1..=NAME_CHARS).contains(&language.len()) && language.bytes().all(is_plain) {
        return Ok(language);
    }
    Err(ConfigError::text(
        "language",
        &language,
        "python, javascript, bash, or the name of an installed kernel",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Integer;

    fn given(change: impl FnOnce(&mut CodeBody)) -> Result<CodeRequest, ConfigError> {
        let mut body = CodeBody { code: "1".into(), ..CodeBody::default() };
        change(&mut body);
        code_request(body, &ExecuteRules::default())
    }

    #[test]
    fn code_alone_gets_every_default() {
        let request = given(|_| {}).unwrap();
        assert_eq!((request.timeout_ms, request.auto_resume), (60_000, true));
        assert_eq!((request.language, request.context_id), (None, None));
    }

    #[test]
    fn values_that_are_not_allowed_are_named() {
        for (field, refused) in [
            ("code", given(|body| body.code = "x".repeat(CODE_BYTES + 1))),
            ("code", given(|body| body.code = "a\0b".into())),
            ("language", given(|body| body.language = Some("a b".into()))),
            ("language", given(|body| body.language = Some(String::new()))),
            ("contextId", given(|body| body.context_id = Some("../x".into()))),
            ("contextId", given(|body| body.context_id = Some("x".repeat(101)))),
            ("timeoutMs", given(|body| body.timeout_ms = Some(Integer::from(0)))),
            (
                "language",
                given(|body| {
                    body.context_id = Some("a".into());
                    body.language = Some("python".into());
                }),
            ),
        ] {
            assert_eq!(refused.unwrap_err().field, field);
        }
        assert!(given(|body| body.code = "x".repeat(CODE_BYTES)).is_ok());
        assert!(given(|body| body.language = Some("c++".into())).is_ok());
        assert!(code_context(CodeContextBody { language: None, cwd: Some("x".into()) }).is_err());
    }
}
