//! Finds the declared endpoint for a method and a path. The only way from a request to a handler of the API.

use std::borrow::Cow;

use axum::http::{HeaderValue, Method};

use super::{Access, Endpoint, Rule};

/// The parameter of path templates that is a sandbox id. No other id has this name.
const SANDBOX: &str = "id";

/// The endpoints of a door.
pub struct Table<S> {
    paths: matchit::Router<usize>,
    resources: Vec<Resource<S>>,
}

/// The endpoints of one path.
pub struct Resource<S> {
    path: &'static str,
    endpoints: Vec<Endpoint<S>>,
    /// The value of the header `Allow`.
    pub allow: HeaderValue,
}

/// Two declarations that cannot both be served.
#[derive(Debug, thiserror::Error)]
pub enum Conflict {
    #[error("{method} {path} is declared twice")]
    Twice { method: Method, path: &'static str },
    #[error("the path {path} cannot be routed")]
    Path { path: &'static str, source: matchit::InsertError },
    #[error("{path} has open and keyed endpoints; one path has one kind")]
    Mixed { path: &'static str },
    #[error("the methods of {path} do not fit into a header")]
    Methods { path: &'static str, source: axum::http::header::InvalidHeaderValue },
}

/// What a method and a path name.
pub enum Matched<'a, S> {
    Endpoint(&'a Endpoint<S>),
    /// The path is known and does not take the method.
    OtherMethod(&'a Resource<S>),
    Nothing,
}

/// The result of routing a request.
pub struct Found<'a, 'p, S> {
    pub matched: Matched<'a, S>,
    /// The sandbox id in the path. Decoded once, so that another spelling of an id does not get another rate limit.
    pub sandbox: Option<Cow<'p, str>>,
}

impl<S> Table<S> {
    /// Fails if two declarations contradict each other.
    pub fn new(endpoints: Vec<Endpoint<S>>) -> Result<Self, Conflict> {
        let mut resources: Vec<Resource<S>> = Vec::new();
        for endpoint in endpoints {
            match resources.iter_mut().find(|resource| resource.path == endpoint.path) {
                Some(resource) => resource.add(endpoint)?,
                None => resources.push(Resource::of(endpoint)),
            }
        }
        let mut paths = matchit::Router::new();
        for (index, resource) in resources.iter_mut().enumerate() {
            let path = resource.path;
            paths.insert(path, index).map_err(|source| Conflict::Path { path, source })?;
            let allow = HeaderValue::from_str(&resource.methods().join(","));
            resource.allow = allow.map_err(|source| Conflict::Methods { path, source })?;
        }
        Ok(Self { paths, resources })
    }

    /// `HEAD` names the endpoint of `GET`.
    pub fn find<'p>(&self, method: &Method, path: &'p str) -> Found<'_, 'p, S> {
        let Ok(found) = self.paths.at(path) else {
            return Found { matched: Matched::Nothing, sandbox: sandbox_of_unknown(path) };
        };
        let sandbox = found.params.get(SANDBOX).and_then(reader::path_segment);
        let Some(resource) = self.resources.get(*found.value) else {
            return Found { matched: Matched::Nothing, sandbox };
        };
        let requested = if *method == Method::HEAD { &Method::GET } else { method };
        let matched = match resource.endpoints.iter().find(|endpoint| endpoint.method == *requested) {
            Some(endpoint) => Matched::Endpoint(endpoint),
            None => Matched::OtherMethod(resource),
        };
        Found { matched, sandbox }
    }
}

/// Where the paths of sandboxes are. The router does not name the sandbox in a path that it does not know.
const SANDBOX_PREFIX: &str = "/v1/sandboxes/";

/// The sandbox id in a path that no endpoint has: the refused request counts as activity of the sandbox.
fn sandbox_of_unknown(path: &str) -> Option<Cow<'_, str>> {
    let rest = path.strip_prefix(SANDBOX_PREFIX)?;
    reader::path_segment(rest.split('/').next()?)
}

impl<S> Resource<S> {
    fn of(endpoint: Endpoint<S>) -> Self {
        Self { path: endpoint.path, endpoints: vec![endpoint], allow: HeaderValue::from_static("") }
    }

    fn add(&mut self, endpoint: Endpoint<S>) -> Result<(), Conflict> {
        let path = self.path;
        if self.endpoints.iter().any(|other| other.method == endpoint.method) {
            return Err(Conflict::Twice { method: endpoint.method, path });
        }
        if self.is_open() != (endpoint.access == Access::Open) {
            return Err(Conflict::Mixed { path });
        }
        self.endpoints.push(endpoint);
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.endpoints.iter().all(|endpoint| endpoint.access == Access::Open)
    }

    /// The methods that the path takes. What answers `GET` answers `HEAD`.
    fn methods(&self) -> Vec<&str> {
        let with_head = |endpoint: &Endpoint<S>| endpoint.method == Method::GET;
        let methods = self.endpoints.iter().map(|endpoint| (endpoint.method.as_str(), with_head(endpoint)));
        methods.flat_map(|(method, head)| [Some(method), head.then_some("HEAD")]).flatten().collect()
    }
}

impl<S> Matched<'_, S> {
    /// What authorization and metrics need to know. An open path needs no key to refuse a method; for any other request without an
    /// endpoint there is no rule, and admission asks for a key.
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Endpoint(endpoint) => Some(Rule { route: endpoint.path, access: endpoint.access }),
            Self::OtherMethod(resource) if resource.is_open() => {
                Some(Rule { route: resource.path, access: Access::Open })
            }
            Self::OtherMethod(_) | Self::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Declaration, NoBody, Open, READ, WRITE};
    use super::*;
    use axum::http::StatusCode;

    struct Nobody;

    impl super::super::Door for Nobody {
        type Error = crate::error::ApiError;
    }

    fn endpoint<A: super::super::AccessRule>(
        declaration: Declaration<Nobody, A, NoBody>,
    ) -> Endpoint<Nobody> {
        declaration.handler(|_| async { Ok(axum::response::IntoResponse::into_response(StatusCode::OK)) })
    }

    #[test]
    fn contradicting_declarations_are_refused() {
        let twice = vec![endpoint(Endpoint::get("/a", READ)), endpoint(Endpoint::get("/a", READ))];
        assert!(matches!(Table::new(twice), Err(Conflict::Twice { path: "/a", .. })));
        let mixed = vec![endpoint(Endpoint::get("/a", Open)), endpoint(Endpoint::post("/a", WRITE))];
        assert!(matches!(Table::new(mixed), Err(Conflict::Mixed { path: "/a" })));
        let other_name =
            vec![endpoint(Endpoint::get("/a/{id}", READ)), endpoint(Endpoint::post("/a/{name}", WRITE))];
        assert!(matches!(Table::new(other_name), Err(Conflict::Path { path: "/a/{name}", .. })));
    }

    #[test]
    fn a_request_finds_its_endpoint_or_none() {
        let table = Table::new(vec![
            endpoint(Endpoint::get("/a", READ)),
            endpoint(Endpoint::delete("/a", WRITE)),
            endpoint(Endpoint::get("/open", Open)),
        ]);
        let table = table.unwrap();
        let rule =
            |method: Method, path: &str| table.find(&method, path).matched.rule().map(|rule| rule.access);
        let read = Access::Key { scope: READ.scope, charge: READ.charge };
        assert_eq!(rule(Method::GET, "/a"), Some(read));
        assert_eq!(rule(Method::HEAD, "/a"), Some(read));
        assert_eq!(rule(Method::POST, "/a"), None);
        assert_eq!(rule(Method::TRACE, "/open"), Some(Access::Open));
        assert_eq!(rule(Method::GET, "/b"), None);
        let Matched::OtherMethod(resource) = table.find(&Method::PUT, "/a").matched else {
            panic!("no resource")
        };
        assert_eq!(resource.allow, "GET,HEAD,DELETE");
    }

    #[test]
    fn the_sandbox_of_a_path_is_the_one_that_the_router_sees() {
        let table = Table::new(vec![
            endpoint(Endpoint::get("/v1/health", Open)),
            endpoint(Endpoint::get("/v1/sandboxes", READ)),
            endpoint(Endpoint::get("/v1/sandboxes/{id}", READ)),
            endpoint(Endpoint::post("/v1/sandboxes/{id}/execute", WRITE)),
        ]);
        let table = table.unwrap();
        for (path, id) in [
            ("/v1/sandboxes/sb_aaaaaaaa/execute", Some("sb_aaaaaaaa")),
            ("/v1/sandboxes/sb_aaaaaaaa", Some("sb_aaaaaaaa")),
            ("/v1/sandboxes/sb_aaaaaaaa/unknown/path", Some("sb_aaaaaaaa")),
            ("/v1/sandboxes/sb%5faaaaaaa%61/execute", Some("sb_aaaaaaaa")),
            ("/v1/sandboxes/sb%5faaaaaaa%61/unknown", Some("sb_aaaaaaaa")),
            ("/v1/sandboxes/sb%/execute", None),
            ("/v1/sandboxes/sb%zz/execute", None),
            ("/v1/sandboxes/%ff/execute", None),
            ("/v1/sandboxes", None),
            ("/v1/health", None),
        ] {
            assert_eq!(table.find(&Method::GET, path).sandbox.as_deref(), id, "{path}");
        }
    }
}
