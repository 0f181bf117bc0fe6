//! Creating a sandbox from a template.

use std::sync::Arc;
use std::time::Duration;

use admission::keyring::Caller;
use api::{
    CreateBody, CreateResources, ErrorCode, Integer, OnTimeout, ProcessesAtTimeout, SandboxConfig, SandboxId,
};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use engine::Template;
use rules::{IsolationRules, Scope, sandbox_config};
use service::idempotency::RecordHeader;
use service::images::{self, PullWait, find_image};
use store::SandboxRecord;

use super::body::{self, NewSandbox};
use super::limits::{rules_for_templates, timeout_ms};
use super::source::{self, Origin, Source};
use super::{Call, create_once, network, view};
use crate::error::E2bError;
use crate::{E2bApi, E2bOptions};

const DEFAULT_TIMEOUT_S: i64 = 300;
/// A create waits this long for its image: some clients give up after 60 s, and do not repeat a create that got 503.
const PULL_TIMEOUT: Duration = Duration::from_secs(50);

pub async fn create(call: Call, body: Body) -> Result<Response, E2bError> {
    let call = &call;
    let Call { api, caller, headers, .. } = call;
    let content = call.collect(body).await?;
    let body: NewSandbox = body::parse_bounds(&content)?;
    let source = source::find(api, &caller.account, &body.template_id).await?;
    let settings = config(api, &caller.account, body, source)?;
    // A response with tokens, which end with their key, must not be repeated to another key.
    let endpoint = match caller.scopes.allows(Scope::Execute) {
        true => format!("POST /sandboxes with tokens of {}", caller.key_id),
        false => "POST /sandboxes".to_owned(),
    };
    let (own, creator) = (Arc::clone(api), caller.clone());
    let creation = async move |header| create_sandbox(own, creator, settings, header).await;
    create_once::run(api, caller, &endpoint, (headers, content), creation).await
}

/// An image that the account may use, by name. Waits for a pull if this host does not have it.
async fn image(api: &E2bApi, account: &str, name: &str) -> Result<Template, E2bError> {
    let wait = PullWait::of_request(PULL_TIMEOUT);
    let found = find_image(&api.service, account, name, wait).await;
    found.map(|image| images::template(&image)).map_err(|error| {
        let is_unknown = error.code == ErrorCode::InvalidConfig;
        let shown = E2bError::from(error);
        if !is_unknown {
            return shown;
        }
        let message = format!("template {} not found: {}", rules::quoted(name), shown.message);
        let E2bError { is_temporary, native, .. } = shown;
        E2bError { is_temporary, native, ..E2bError::not_found(message) }
    })
}

/// Creates a sandbox, and returns its id and view.
async fn create_sandbox(
    api: Arc<E2bApi>,
    caller: Caller,
    (config, options, origin): (SandboxConfig, E2bOptions, Origin),
    header: Option<RecordHeader>,
) -> Result<(SandboxId, Vec<u8>), E2bError> {
    let image = match &origin {
        Origin::Built(built) => api.service.builder.image(built).map_err(E2bError::of_builder)?,
        Origin::Snapshot(snapshot) => {
            let found = api.service.engine.snapshot_template(&caller.account, snapshot).await;
            found.map_err(E2bError::of_engine)?.0
        }
        Origin::Image => image(&api, &caller.account, &config.image).await?,
    };
    let pending = header.map(|header| {
        let (api, caller, options) = (Arc::clone(&api), caller.clone(), options.clone());
        header.into_pending(move |record: &SandboxRecord| {
            let view = view::sandbox(&api, &caller, &record.id, &options);
            (StatusCode::CREATED.as_u16(), view.to_string().into_bytes())
        })
    });
    let starts = match origin {
        Origin::Built(built) if image.processes_from.is_none() => Some(built),
        _ => None,
    };
    let created = api.service.engine.create(&caller.account, config, image, pending).await;
    let status = created.map_err(E2bError::of_engine)?;
    if let Some(built) = starts {
        run_start(&api, &built, &status.record.id).await?;
    }
    let id = status.record.id.clone();
    let shown = view::sandbox(&api, &caller, &id, &options).to_string().into_bytes();
    Ok((id, shown))
}

/// Runs the start command of a template, unless the sandbox has its processes. A sandbox whose command fails is not what was asked for.
async fn run_start(api: &E2bApi, template: &builder::Template, id: &SandboxId) -> Result<(), E2bError> {
    let Err(error) = api.service.builder.run_start(template, id).await else { return Ok(()) };
    if let Err(error) =
        api.service.engine.sandbox(&template.account, id).terminate("start_command_failed").await
    {
        tracing::warn!(%id, %error, "cannot end a sandbox whose start command failed");
    }
    Err(E2bError::new(StatusCode::BAD_GATEWAY, format!("the start command of the template failed: {error}")))
}

fn config(
    api: &E2bApi,
    account: &str,
    body: NewSandbox,
    Source { origin, template, floor, defaults }: Source,
) -> Result<(SandboxConfig, E2bOptions, Origin), E2bError> {
    if body.iam.is_some() {
        return Err(E2bError::invalid("iam is not supported by this service"));
    }
    if body.volume_mounts.is_some_and(|mounts| !mounts.is_empty()) {
        return Err(E2bError::invalid("volumeMounts is not supported by this service"));
    }
    let network = body.network.unwrap_or_default();
    let policy = network::policy(&network, body.allow_internet_access)?;
    let timeout_ms = timeout_ms(body.timeout.unwrap_or(DEFAULT_TIMEOUT_S))?;
    let auto_resume = body.auto_resume.and_then(|it| it.enabled).unwrap_or(false);
    let isolation = IsolationRules::new(&api.settings.isolation, account).at_least(floor);
    let limits = rules_for_templates(isolation);
    let number = |given: Option<u32>| given.map(Integer::from);
    let create = CreateBody {
        cold: None,
        image: template.image,
        resources: Some(CreateResources {
            cpu: number(template.cpu),
            memory_mb: number(template.memory_mb),
            disk_mb: number(template.disk_mb),
        }),
        env: Some(body.env_vars.unwrap_or_default()),
        workdir: None,
        timeout_ms: Some(Integer::from(timeout_ms.max(1))),
        // Only a timeout, a request or the host pauses it.
        idle_timeout_ms: Some(0),
        on_timeout: Some(match body.auto_pause {
            Some(true) => OnTimeout::Pause,
            _ => OnTimeout::Terminate,
        }),
        auto_resume: Some(auto_resume),
        // It may be among the metadata.
        name: None,
        metadata: Some(body.metadata.unwrap_or_default()),
        network: Some(policy),
        isolation: None,
    };
    let mut config = sandbox_config(create, &limits).map_err(|error| E2bError::invalid(error.to_string()))?;
    let options = E2bOptions {
        template: body.template_id,
        timeout_ms: timeout_ms.max(1),
        secure: body.secure.unwrap_or(true),
        public_ports: api.settings.public_ports && network.allow_public_traffic.unwrap_or(true),
        mask_request_host: network.mask_request_host.map(network::host_mask).transpose()?,
        user: defaults.user,
        workdir: defaults.workdir,
    };
    config.default_user = true;
    if body.auto_pause_memory == Some(false) {
        config.processes_at_timeout = ProcessesAtTimeout::Ended;
    }
    options.clone().add_to(&mut config).map_err(|_| E2bError::internal())?;
    Ok((config, options, origin))
}
