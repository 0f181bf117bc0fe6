//! The decisions about a request, in the order of the crate's documentation. All doors share one [`Gate`].

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::SandboxId;
use axum::response::Response;
use futures_util::FutureExt;
use rules::{Charge, KeyLimits, Scope};
use store::Store;

use crate::error::{ApiError, of_quota, rate_limited};
use crate::in_flight::{InFlight, Kind};
use crate::key_uses::KeyUses;
use crate::keyring::{Caller, InvalidKey, Keyring};
use crate::limiter::{Limiter, RateHeaders, Refused};
use crate::memory::RequestMemory;
use crate::metrics::RequestMetrics;
use crate::output_memory::OutputMemory;
use crate::proxies::TrustedProxies;

/// Keys, limits and budgets of all accounts.
pub struct Gate {
    pub keyring: Keyring,
    pub key_uses: KeyUses,
    pub limiter: Limiter,
    /// Requests and streams of each account.
    pub in_flight: InFlight,
    /// Memory for request bodies.
    pub request_memory: Arc<RequestMemory>,
    /// Memory for output that clients have not read yet.
    pub output_memory: Arc<OutputMemory>,
    pub metrics: RequestMetrics,
    /// Proxies whose forwarding headers count.
    pub trusted_proxies: TrustedProxies,
    /// Where new keys are.
    pub store: Arc<dyn Store>,
}

/// A request with a valid key that is refused.
#[derive(Debug)]
pub struct Refusal {
    pub error: ApiError,
    pub rate_headers: RateHeaders,
}

impl Gate {
    /// The caller of a key. Reads the store only for a key that is not known.
    pub async fn authenticate(&self, key: &str) -> Result<Caller, InvalidKey> {
        let found = self.keyring.authenticate(key);
        // The key may be newer than the keyring's last refresh.
        if found.is_err() && self.keyring.refresh_and_find(key, &*self.store).await {
            return self.keyring.authenticate(key);
        }
        found
    }

    /// Checks the scope, and counts the request against its rate limit. `scope` is `None` if the request has no endpoint; `sandbox` is
    /// the id of the sandbox that it names, if any.
    pub fn admit(
        &self,
        caller: &Caller,
        scope: Option<Scope>,
        charge: Option<Charge>,
        sandbox: Option<&str>,
    ) -> Result<RateHeaders, Refusal> {
        if let Some(scope) = scope.filter(|scope| !caller.scopes.allows(*scope)) {
            self.metrics.refused("forbidden");
            let message = format!("the key has the scopes {}; this request needs '{scope}'", caller.scopes);
            let error =
                ApiError::new(api::ErrorCode::Forbidden, message).with_detail("scope", scope.as_str());
            return Err(Refusal { error, rate_headers: self.limiter.uncounted() });
        }
        let Some(charge) = charge else { return Ok(self.limiter.uncounted()) };
        self.limiter
            .count(caller, charge, sandbox)
            .map_err(|refused| Refusal { error: self.rate_limited(&refused), rate_headers: refused.headers })
    }

    /// Counts the start of a command by a token of the sandbox, against the limit of the key that the token was made for, if any, or of
    /// the account.
    pub fn count_execution(
        &self,
        account: &Arc<str>,
        key_id: Option<&str>,
        sandbox: &SandboxId,
    ) -> Result<(), ApiError> {
        // A key that was revoked a moment ago is refused by the next request.
        let limits = key_id.and_then(|key_id| self.keyring.of_id(key_id));
        let limits = limits.map_or_else(KeyLimits::default, |key| key.limits);
        let counted = self.limiter.count_execution(account, limits, sandbox);
        counted.map_err(|refused| self.rate_limited(&refused))
    }

    fn rate_limited(&self, refused: &Refused) -> ApiError {
        self.metrics.refused("rate_limited");
        rate_limited(refused)
    }

    /// Runs the handler of an admitted request. The request is in flight until the response is read, and a large response counts
    /// towards the account's memory. `account` is `None` for endpoints that need no key. `refuse` gives an error the form of the door; a
    /// panic becomes an internal error.
    pub async fn run(
        &self,
        account: Option<&Arc<str>>,
        kind: Kind,
        handler: impl Future<Output = Response>,
        refuse: impl Fn(ApiError) -> Response,
    ) -> Response {
        let permit = match account.map(|account| self.in_flight.enter(account, kind)).transpose() {
            Ok(permit) => permit,
            Err(exceeded) => {
                self.metrics.refused("quota_exceeded");
                return refuse(of_quota(&exceeded));
            }
        };
        let answered = AssertUnwindSafe(handler).catch_unwind().await;
        let mut response = answered.unwrap_or_else(|panic| refuse(panicked(&*panic)));
        if let Some(account) = account {
            response = self.output_memory.count(account, response).unwrap_or_else(&refuse);
        }
        match permit {
            Some(permit) => permit.attach(response),
            None => response,
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> ApiError {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    ApiError::internal(format!("a handler panicked: {}", message.unwrap_or("without a message")))
}
