//! Creating a sandbox from a template.

use std::sync::Arc;

use api::{CreateBody, CreateResources, E2bOptions, Integer, OnTimeout, SandboxConfig};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use rules::{ConfigRules, IsolationRules, Range, Scope, sandbox_config};
use serde_json::json;
use store::SnapshotRecord;

use super::body::{self, NewSandbox};
use super::{Call, network, snapshots, view};
use crate::error::E2bError;
use crate::services::{Caller, Creation, NewRecord};
use crate::{E2bApi, Template};

const DEFAULT_TIMEOUT_S: i64 = 300;

pub async fn create(call: &Call<'_>, body: Body) -> Result<Response, E2bError> {
    let Call { api, caller, headers, .. } = call;
    let content = body::collect(body).await?;
    let body: NewSandbox = body::parse(&content)?;
    let snapshot = snapshot_of(api, &caller.account, &body.template_id)?;
    let config = config(api, &caller.account, body, snapshot.as_deref())?;
    // A response with tokens must not be repeated to a key that gets none.
    let endpoint = match caller.scopes.allows(Scope::Execute) {
        true => "POST /sandboxes with tokens",
        false => "POST /sandboxes",
    };
    let (own, creator) = (E2bApi::clone(api), caller.clone());
    let creation: Creation = Box::new(move |record| Box::pin(create_sandbox(own, creator, config, record)));
    api.services.create_once(caller, endpoint, (headers, content), creation).await
}

/// Creates a sandbox, and returns its view.
async fn create_sandbox(
    api: E2bApi,
    caller: Caller,
    config: SandboxConfig,
    new_record: Option<NewRecord>,
) -> Result<Vec<u8>, E2bError> {
    let image = match config.image.parse() {
        Ok(snapshot) => {
            let found = api.engine.snapshot_template(&caller.account, &snapshot);
            found.map_err(|error| api.services.error(error))?.0
        }
        Err(_) => api.services.image(&config.image).await?,
    };
    let pending = new_record.map(|new_record| {
        let (api, caller) = (api.clone(), caller.clone());
        new_record(Box::new(move |record| {
            (StatusCode::CREATED.as_u16(), view::sandbox(&api, &caller, record).to_string().into_bytes())
        }))
    });
    let created = api.engine.create(&caller.account, config, image, pending).await;
    let status = created.map_err(|error| api.services.error(error))?;
    Ok(view::sandbox(&api, &caller, &status.record).to_string().into_bytes())
}

/// The snapshot that a create names as its template, unless a template has this name.
fn snapshot_of(api: &E2bApi, account: &str, name: &str) -> Result<Option<Arc<SnapshotRecord>>, E2bError> {
    if api.settings.templates.contains_key(name) {
        return Ok(None);
    }
    let Some(id) = snapshots::named(api, account, name) else { return Ok(None) };
    let missing = |_| E2bError::not_found(format!("template {} not found", rules::quoted(name)));
    api.engine.snapshot(account, &id).map(Some).map_err(missing)
}

/// Whether there is a template or a snapshot of this name.
pub fn template(call: &Call<'_>, name: &str) -> Result<Response, E2bError> {
    let is_snapshot = || matches!(snapshot_of(call.api, &call.caller.account, name), Ok(Some(_)));
    if !call.api.settings.templates.contains_key(name) && !is_snapshot() {
        return Err(E2bError::not_found(format!("template {} not found", rules::quoted(name))));
    }
    Ok(view::json(StatusCode::OK, &json!({ "templateID": name, "public": true })))
}

/// The template of this name, the snapshot with its resources, or the image of this name with the default resources.
fn template_of(api: &E2bApi, name: &str, snapshot: Option<&SnapshotRecord>) -> Template {
    if let Some(SnapshotRecord { id, resources, .. }) = snapshot {
        let (cpu, memory_mb, disk_mb) = (resources.cpu, resources.memory_mb, resources.disk_mb);
        return Template {
            image: id.to_string(),
            cpu: Some(cpu),
            memory_mb: Some(memory_mb),
            disk_mb: Some(disk_mb),
        };
    }
    let named = api.settings.templates.get(name).cloned();
    named.unwrap_or_else(|| Template { image: name.to_owned(), cpu: None, memory_mb: None, disk_mb: None })
}

fn config(
    api: &E2bApi,
    account: &str,
    body: NewSandbox,
    snapshot: Option<&SnapshotRecord>,
) -> Result<SandboxConfig, E2bError> {
    if body.iam.is_some() {
        return Err(E2bError::invalid("iam is not supported by this service"));
    }
    if body.volume_mounts.is_some_and(|mounts| !mounts.is_empty()) {
        return Err(E2bError::invalid("volumeMounts is not supported by this service"));
    }
    let network = body.network.unwrap_or_default();
    let policy = network::policy(&network, body.allow_internet_access)?;
    let template = template_of(api, &body.template_id, snapshot);
    let timeout_ms = timeout_ms(body.timeout.unwrap_or(DEFAULT_TIMEOUT_S))?;
    let auto_resume = body.auto_resume.and_then(|it| it.enabled).unwrap_or(false);
    let floor = snapshot.map(|snapshot| snapshot.isolation).unwrap_or_default();
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
        metadata: Some(body.metadata.unwrap_or_default()),
        network: Some(policy),
        isolation: None,
    };
    let config = sandbox_config(create, &limits).map_err(|error| E2bError::invalid(error.to_string()))?;
    let options = E2bOptions {
        template: body.template_id,
        timeout_ms: timeout_ms.max(1),
        auto_resume,
        pause_without_memory: body.auto_pause_memory == Some(false),
        secure: body.secure.unwrap_or(true),
        public_ports: api.settings.public_ports && network.allow_public_traffic.unwrap_or(true),
        mask_request_host: network.mask_request_host.map(network::host_mask).transpose()?,
    };
    Ok(SandboxConfig { e2b: Some(Box::new(options)), default_user: true, ..config })
}

/// Milliseconds of a timeout in seconds. A timeout of 0 ends the sandbox at once.
pub fn timeout_ms(seconds: i64) -> Result<u64, E2bError> {
    let allowed = api::bounds::TIMEOUT_MS;
    let ms = u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000));
    ms.filter(|ms| *ms <= allowed.max).ok_or_else(|| {
        E2bError::invalid(format!("timeout is {seconds}; allowed: 0 to {} seconds", allowed.max / 1000))
    })
}

/// The operator chooses the resources of templates, and checks them at the start.
fn rules_for_templates(isolation: IsolationRules) -> ConfigRules {
    let rules = ConfigRules::default();
    ConfigRules {
        cpu_allowed: (1..=64).collect(),
        memory_mb: Range { min: 128, max: u32::MAX, ..rules.memory_mb },
        disk_mb: Range { min: 512, max: u32::MAX, ..rules.disk_mb },
        isolation,
        ..rules
    }
}
