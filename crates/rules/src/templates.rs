//! Templates: what requests for builds may ask for, and queries of lists.

pub mod build_polls;
pub mod readiness;

use std::collections::BTreeMap;

use api::bounds::Range;
use api::{CreateBody, IsolationChoice, SandboxConfig, TemplateBody, TemplateState};

use crate::config::{Integer, env, integer, metadata, sandbox_config};
use crate::listing::{QueryError, list_query, repeated};
use crate::{ConfigError, ConfigRules};

const NAME_BYTES: usize = 128;
const COMMAND_BYTES: usize = 64 * 1024;
const PATH_BYTES: usize = 4096;
const DOCKERFILE_BYTES: usize = 256 * 1024;
const DEFAULT_TIMEOUT_MS: Integer = 30 * 60 * 1000;
const READY_MS: Range<u64> = Range { min: 1, max: 3_600_000, default: 60_000 };
const DOCKERFILE: &str = "Dockerfile";

/// A checked request for a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRequest {
    pub name: String,
    pub dockerfile: DockerfileSource,
    /// The id of a context, or base64.
    pub context: Option<String>,
    pub args: BTreeMap<String, String>,
    pub start: Option<StartRequest>,
    /// Of the sandboxes in which the steps run. Its timeout is that of the build.
    pub config: SandboxConfig,
    /// As requested: the isolation of `config` does not depend on the base.
    pub isolation: IsolationChoice,
    pub no_cache: bool,
    pub metadata: BTreeMap<String, String>,
}

/// Where the Dockerfile is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DockerfileSource {
    Text(String),
    /// In the context.
    Path(String),
}

/// A start command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRequest {
    pub command: String,
    pub ready: Option<String>,
    pub timeout_ms: u64,
}

/// Checks a request for a build.
pub fn template_request(body: TemplateBody, rules: &ConfigRules) -> Result<TemplateRequest, ConfigError> {
    let name = template_name("name", body.name.clone())?;
    let dockerfile = dockerfile_source(&body)?;
    let start = start_request(&body)?;
    let isolation = body.isolation.unwrap_or_default();
    let create = CreateBody {
        image: name.clone(),
        resources: body.resources,
        network: body.network,
        isolation: body.isolation,
        timeout_ms: Some(body.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
        // A step is over when its command is.
        idle_timeout_ms: Some(0),
        ..CreateBody::default()
    };
    Ok(TemplateRequest {
        name,
        dockerfile,
        context: body.context,
        args: env(body.build_args.unwrap_or_default()).map_err(of_args)?,
        start,
        config: sandbox_config(create, rules)?,
        isolation,
        no_cache: body.no_cache.unwrap_or(false),
        metadata: metadata(body.metadata.unwrap_or_default(), rules)?,
    })
}

/// Build arguments have the bounds of variables.
fn of_args(error: ConfigError) -> ConfigError {
    ConfigError { field: error.field.replacen("env", "buildArgs", 1), ..error }
}

fn dockerfile_source(body: &TemplateBody) -> Result<DockerfileSource, ConfigError> {
    match (&body.dockerfile, &body.dockerfile_path) {
        (Some(text), None) => Ok(DockerfileSource::Text(bounded("dockerfile", text, DOCKERFILE_BYTES)?)),
        (None, path) if body.context.is_some() => {
            let path = path.as_deref().unwrap_or(DOCKERFILE);
            Ok(DockerfileSource::Path(bounded("dockerfilePath", path, PATH_BYTES)?))
        }
        (Some(_), Some(path)) => {
            Err(ConfigError::text("dockerfilePath", path, "nothing if dockerfile is given"))
        }
        (None, _) => {
            let allowed = "the text of a Dockerfile, or a context that has the file";
            Err(ConfigError::new("dockerfile", "missing", allowed))
        }
    }
}

fn start_request(body: &TemplateBody) -> Result<Option<StartRequest>, ConfigError> {
    let text = |field, command: &String| bounded(field, command, COMMAND_BYTES);
    let Some(command) = &body.start_command else {
        let allowed = "nothing without startCommand";
        return match (&body.ready_command, body.ready_timeout_ms) {
            (None, None) => Ok(None),
            (Some(ready), _) => Err(ConfigError::text("readyCommand", ready, allowed)),
            (None, Some(timeout)) => Err(ConfigError::new("readyTimeoutMs", timeout, allowed)),
        };
    };
    Ok(Some(StartRequest {
        command: text("startCommand", command)?,
        ready: body.ready_command.as_ref().map(|ready| text("readyCommand", ready)).transpose()?,
        timeout_ms: integer("readyTimeoutMs", body.ready_timeout_ms, READY_MS)?,
    }))
}

/// Checks the name of a template.
pub fn template_name(field: &str, name: String) -> Result<String, ConfigError> {
    let is_start = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = (1..=NAME_BYTES).contains(&name.len())
        && name.bytes().next().is_some_and(is_start)
        && name.bytes().all(|byte| is_start(byte) || b"._/-".contains(&byte))
        // Ids of other things.
        && !["snap_", "tpl_", "sb_"].iter().any(|prefix| name.starts_with(prefix));
    if fits {
        return Ok(name);
    }
    let hint = if name.contains(':') { "; leave out the tag: versions are numbered" } else { "" };
    let allowed = format!(
        "1 to {NAME_BYTES} lower-case letters, digits and '._/-', beginning with a letter or digit; not an id{hint}"
    );
    Err(ConfigError::text(field, &name, allowed))
}

fn bounded(field: &'static str, text: &str, most: usize) -> Result<String, ConfigError> {
    if !text.is_empty() && text.len() <= most && !text.contains('\0') {
        return Ok(text.to_owned());
    }
    let got = format!("{} bytes long", text.len());
    Err(ConfigError::new(field, got, format!("1 to {most} bytes without NUL")))
}

/// A query of the list of templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateQuery {
    pub name: Option<String>,
    pub state: Option<TemplateState>,
    /// All pairs must match.
    pub metadata: BTreeMap<String, String>,
    pub limit: u32,
    pub offset: u64,
}

/// Reads the query of the list of templates.
pub fn template_query(
    pairs: impl IntoIterator<Item = (String, String)>,
) -> Result<TemplateQuery, QueryError> {
    let (mut name, mut state, mut shared): (Option<String>, Option<String>, _) = (None, None, Vec::new());
    for (key, value) in pairs {
        let slot = match key.as_str() {
            "name" => &mut name,
            "state" => &mut state,
            // Lists of sandboxes have it, lists of templates do not.
            "image" => continue,
            _ => {
                shared.push((key, value));
                continue;
            }
        };
        if let Some(first) = slot {
            return Err(repeated(key, first, &value));
        }
        *slot = Some(value);
    }
    let page = list_query(shared)?;
    let state = match state {
        None => None,
        Some(text) => {
            let known = TemplateState::ALL.into_iter().find(|known| known.name() == text);
            let names = TemplateState::ALL.map(TemplateState::name).join(", ");
            Some(known.ok_or_else(|| QueryError::new("state", &text, names))?)
        }
    };
    Ok(TemplateQuery { name, state, metadata: page.metadata, limit: page.limit, offset: page.offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> TemplateBody {
        TemplateBody {
            name: "web".to_owned(),
            dockerfile: Some("FROM a".to_owned()),
            ..TemplateBody::default()
        }
    }

    fn request(body: TemplateBody) -> Result<TemplateRequest, ConfigError> {
        template_request(body, &ConfigRules::default())
    }

    #[test]
    fn defaults() {
        let plain = request(body()).unwrap();
        assert_eq!((plain.config.timeout_ms, plain.config.idle_timeout_ms), (1_800_000, 0));
        assert_eq!((plain.start, plain.no_cache), (None, false));
        let in_context = TemplateBody { dockerfile: None, context: Some("ctx_1".to_owned()), ..body() };
        let path = DockerfileSource::Path("Dockerfile".to_owned());
        assert_eq!(request(in_context).unwrap().dockerfile, path);
        let start = TemplateBody { start_command: Some("serve".to_owned()), ..body() };
        assert_eq!(request(start).unwrap().start.unwrap().timeout_ms, 60_000);
    }

    #[test]
    fn values_out_of_range_name_their_field() {
        let text = |text: &str| Some(text.to_owned());
        for (field, body) in [
            ("name", TemplateBody { name: String::new(), ..body() }),
            ("name", TemplateBody { name: "Web".to_owned(), ..body() }),
            ("name", TemplateBody { name: "a:1".to_owned(), ..body() }),
            ("name", TemplateBody { name: "snap_abcdefgh".to_owned(), ..body() }),
            ("name", TemplateBody { name: "x".repeat(129), ..body() }),
            ("dockerfile", TemplateBody { dockerfile: None, ..body() }),
            ("dockerfile", TemplateBody { dockerfile: text(""), ..body() }),
            ("dockerfilePath", TemplateBody { dockerfile_path: text("x"), ..body() }),
            ("startCommand", TemplateBody { start_command: text(""), ..body() }),
            ("readyCommand", TemplateBody { ready_command: text("x"), ..body() }),
            ("readyTimeoutMs", TemplateBody { ready_timeout_ms: Some(5), ..body() }),
            (
                "readyTimeoutMs",
                TemplateBody { start_command: text("x"), ready_timeout_ms: Some(0), ..body() },
            ),
            ("timeoutMs", TemplateBody { timeout_ms: Some(0), ..body() }),
        ] {
            assert_eq!(request(body).unwrap_err().field, field);
        }
    }

    #[test]
    fn a_name_with_a_tag_is_refused_with_a_hint() {
        let allowed = |name: &str| template_name("name", name.to_owned()).unwrap_err().allowed;
        assert!(allowed("myapp:latest").ends_with("leave out the tag: versions are numbered"));
        assert!(!allowed("MyApp").contains("tag"));
    }

    #[test]
    fn a_query_has_filters_and_a_page() {
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            template_query(owned.collect::<Vec<_>>())
        };
        let query = pairs(&[("name", "web"), ("state", "ready"), ("limit", "3")]).unwrap();
        assert_eq!(
            (query.name.as_deref(), query.state, query.limit),
            (Some("web"), Some(TemplateState::Ready), 3)
        );
        assert_eq!(pairs(&[("state", "done")]).unwrap_err().field, "state");
        assert_eq!(pairs(&[("name", "a"), ("name", "b")]).unwrap_err().field, "name");
    }
}
