//! Admits a request to the native API: finds its key and its sandbox, and lets the gate decide.

use admission::Refusal;
use admission::endpoint::{Access, Rule};
use admission::error::ApiError;
use admission::keyring::Caller;
use admission::limiter::RateHeaders;
use api::{ErrorCode, SandboxId};
use axum::http::{HeaderMap, Method, Uri, header};
use rules::Charge;
use service::Service;

use super::named_sandbox::NamedSandbox;

const SCHEME: &str = "bearer";
/// Prefix of a key among the subprotocols of a websocket.
const KEY_PROTOCOL: &str = "sandboxd.key.";

/// The result of admission.
pub struct Admitted {
    /// Also set for refused requests whose key is valid.
    pub caller: Option<Caller>,
    /// The sandbox in the path.
    pub sandbox: NamedSandbox,
    pub rate_headers: RateHeaders,
    pub refusal: Option<ApiError>,
}

impl Admitted {
    pub fn is_unauthorized(&self) -> bool {
        self.refusal.as_ref().is_some_and(|error| error.code == ErrorCode::Unauthorized)
    }

    /// The key of the request, if it is not a valid key of the keyring.
    pub fn unknown_key(&self, headers: &HeaderMap) -> Option<String> {
        if self.is_unauthorized() { bearer(headers).ok().map(str::to_owned) } else { None }
    }
}

/// `text` is the text in place of the sandbox id in the path, if any.
pub async fn admit(
    service: &Service,
    rule: Option<Rule>,
    text: Option<&str>,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
) -> Admitted {
    let uncounted = |refusal| {
        let (sandbox, rate_headers) = (NamedSandbox::without_caller(text), service.gate.limiter.uncounted());
        Admitted { caller: None, sandbox, rate_headers, refusal }
    };
    // A request without an endpoint gets 404 or 405, but only with a valid key. It counts as a read or a write by its method.
    let (scope, charge) = match rule.map(|rule| rule.access) {
        Some(Access::Open) => return uncounted(None),
        Some(access) => (access.scope(), access.charge()),
        None => (None, Some(Charge::without_endpoint(method.as_str()))),
    };
    let caller = match authenticate(service, headers).await {
        Ok(caller) => caller,
        Err(message) => return uncounted(Some(ApiError::new(ErrorCode::Unauthorized, message))),
    };
    let sandbox = NamedSandbox::find(service, &caller, uri.path(), text);
    let admitted = service.gate.admit(&caller, scope, charge, sandbox.id().map(SandboxId::as_str));
    // Without a rule it is refused later, with 404 or 405.
    if admitted.is_err() || rule.is_none() {
        touch(service, &caller, method, sandbox.id());
    }
    let (rate_headers, refusal) = match admitted {
        Ok(rate_headers) => (rate_headers, None),
        Err(Refusal { error, rate_headers }) => (rate_headers, Some(error)),
    };
    Admitted { caller: Some(caller), sandbox, rate_headers, refusal }
}

async fn authenticate(service: &Service, headers: &HeaderMap) -> Result<Caller, String> {
    let authenticated = service.gate.authenticate(bearer(headers)?).await;
    authenticated.map_err(|invalid| invalid.to_string())
}

fn bearer(headers: &HeaderMap) -> Result<&str, &'static str> {
    const MISSING: &str = "header Authorization is missing; send 'Authorization: Bearer API_KEY'";
    const TWICE: &str = "header Authorization was sent more than once; send it once";
    const OTHER: &str = "header Authorization is malformed; allowed: 'Bearer API_KEY'";
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return subprotocol(headers).ok_or(MISSING) };
    if values.next().is_some() {
        return Err(TWICE);
    }
    let (scheme, key) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(OTHER)?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Err(OTHER);
    }
    Ok(key.trim_matches(' '))
}

/// The key of a websocket whose client cannot set `Authorization`, such as a browser.
fn subprotocol(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::UPGRADE)?;
    let offered =
        headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut keys =
        offered.flat_map(|value| value.split(',')).filter_map(|word| word.trim().strip_prefix(KEY_PROTOCOL));
    keys.next().filter(|_| keys.next().is_none())
}

/// Counts a refused request that names a sandbox as activity, unless it only reads. The engine counts requests that reach it.
fn touch(service: &Service, caller: &Caller, method: &Method, sandbox: Option<&SandboxId>) {
    if matches!(*method, Method::GET | Method::HEAD) {
        return;
    }
    if let Some(id) = sandbox {
        service.engine.sandbox(&caller.account, id).touch();
    }
}
