//! Checks a request's key, the scopes of the key, and the rate limits, in this order. No I/O.

use api::{ErrorCode, SandboxId};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use rules::Charge;

use super::named_sandbox::NamedSandbox;
use crate::endpoint::{Access, Rule};
use crate::error::{ApiError, rate_limited};
use crate::keyring::{Caller, Keyring};
use crate::limiter::RateHeaders;
use crate::service::Service;

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
pub fn admit(service: &Service, rule: Option<Rule>, text: Option<&str>, request: &Request) -> Admitted {
    let uncounted = |caller, sandbox, refusal| {
        let rate_headers = service.limiter.uncounted();
        Admitted { caller, sandbox, rate_headers, refusal }
    };
    if matches!(rule, Some(Rule { access: Access::Open, .. })) {
        return uncounted(None, NamedSandbox::without_caller(text), None);
    }
    let caller = match authenticate(&service.keyring, request.headers()) {
        Ok(caller) => caller,
        Err(message) => {
            let error = ApiError::new(ErrorCode::Unauthorized, message);
            return uncounted(None, NamedSandbox::without_caller(text), Some(error));
        }
    };
    let sandbox = NamedSandbox::find(service, &caller, request.uri().path(), text);
    // A request without an endpoint gets 404 or 405, but only with a valid key. It counts as a read or a write by its method.
    let (scope, charge) = match rule {
        Some(Rule { access: Access::Key { scope, charge }, .. }) => (Some(scope), charge),
        _ => (None, Charge::without_endpoint(request.method().as_str())),
    };
    if let Some(scope) = scope.filter(|scope| !caller.scopes.allows(*scope)) {
        service.metrics.refused("forbidden");
        touch(service, &caller, request.method(), sandbox.id());
        let message = format!("the key has the scopes {}; this request needs '{scope}'", caller.scopes);
        let error = ApiError::new(ErrorCode::Forbidden, message).with_detail("scope", scope.as_str());
        return uncounted(Some(caller), sandbox, Some(error));
    }
    match service.limiter.count(&caller, charge, sandbox.id().map(SandboxId::as_str)) {
        Ok(rate_headers) => {
            if rule.is_none() {
                // Refused later, with 404 or 405.
                touch(service, &caller, request.method(), sandbox.id());
            }
            Admitted { caller: Some(caller), sandbox, rate_headers, refusal: None }
        }
        Err(refused) => {
            service.metrics.refused("rate_limited");
            touch(service, &caller, request.method(), sandbox.id());
            let error = rate_limited(&refused);
            Admitted { caller: Some(caller), sandbox, rate_headers: refused.headers, refusal: Some(error) }
        }
    }
}

fn authenticate(keyring: &Keyring, headers: &HeaderMap) -> Result<Caller, String> {
    keyring.authenticate(bearer(headers)?).map_err(|invalid| invalid.to_string())
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
