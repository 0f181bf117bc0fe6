//! Finds the declared endpoint for a method and a path. The only way from a request to a handler of the API.

use std::borrow::Cow;

use axum::http::{HeaderValue, Method};

use super::{Access, Endpoint, Rule};

/// The parameter of path templates that is a sandbox id. No other id has this name.
const SANDBOX: &str = "id";

/// The endpoints of a door.
pub struct Table<S> {
    endpoints: Vec<Endpoint<S>>,
    /// The endpoints of each method. A path can be that of one method where another method has a pattern.
    methods: Vec<(Method, matchit::Router<usize>)>,
    /// For what no endpoint of the method takes.
    paths: matchit::Router<usize>,
    resources: Vec<Resource>,
}

/// What all endpoints of one path have in common.
pub struct Resource {
    pub path: &'static str,
    methods: Vec<Method>,
    is_open: bool,
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
    OtherMethod(&'a Resource),
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
        let mut resources: Vec<Resource> = Vec::new();
        let mut methods: Vec<(Method, matchit::Router<usize>)> = Vec::new();
        for (index, endpoint) in endpoints.iter().enumerate() {
            match resources.iter_mut().find(|resource| resource.path == endpoint.path) {
                Some(resource) => resource.add(endpoint)?,
                None => resources.push(Resource::of(endpoint)),
            }
            let path = endpoint.path;
            let at = methods.iter().position(|(method, _)| *method == endpoint.method).unwrap_or_else(|| {
                methods.push((endpoint.method.clone(), matchit::Router::new()));
                methods.len() - 1
            });
            methods[at].1.insert(path, index).map_err(|source| Conflict::Path { path, source })?;
        }
        let mut paths = matchit::Router::new();
        for (index, resource) in resources.iter_mut().enumerate() {
            let path = resource.path;
            paths.insert(path, index).map_err(|source| Conflict::Path { path, source })?;
            let allow = HeaderValue::from_str(&resource.allowed().join(","));
            resource.allow = allow.map_err(|source| Conflict::Methods { path, source })?;
        }
        Ok(Self { endpoints, methods, paths, resources })
    }

    /// `HEAD` names the endpoint of `GET`.
    pub fn find<'p>(&self, method: &Method, path: &'p str) -> Found<'_, 'p, S> {
        let requested = if *method == Method::HEAD { &Method::GET } else { method };
        let router = self.methods.iter().find(|(method, _)| method == requested);
        if let Some(found) = router.and_then(|(_, router)| router.at(path).ok())
            && let Some(endpoint) = self.endpoints.get(*found.value)
        {
            let sandbox = found.params.get(SANDBOX).and_then(reader::path_segment);
            return Found { matched: Matched::Endpoint(endpoint), sandbox };
        }
        let Ok(found) = self.paths.at(path) else {
            return Found { matched: Matched::Nothing, sandbox: sandbox_of_unknown(path) };
        };
        let sandbox = found.params.get(SANDBOX).and_then(reader::path_segment);
        let resource = self.resources.get(*found.value);
        Found { matched: resource.map_or(Matched::Nothing, Matched::OtherMethod), sandbox }
    }

    /// The method and the rule of each endpoint, for tests of all doors.
    pub fn rules(&self) -> impl Iterator<Item = (&Method, Rule)> {
        self.endpoints.iter().map(|endpoint| (&endpoint.method, endpoint.rule()))
    }
}

impl<S> Endpoint<S> {
    fn rule(&self) -> Rule {
        Rule { route: self.path, access: self.access }
    }
}

/// Where the paths of sandboxes are. The router does not name the sandbox in a path that it does not know.
const SANDBOX_PREFIX: &str = "/v1/sandboxes/";

/// The sandbox id in a path that no endpoint has: the refused request counts as activity of the sandbox.
fn sandbox_of_unknown(path: &str) -> Option<Cow<'_, str>> {
    let rest = path.strip_prefix(SANDBOX_PREFIX)?;
    reader::path_segment(rest.split('/').next()?)
}

impl Resource {
    fn of<S>(endpoint: &Endpoint<S>) -> Self {
        Self {
            path: endpoint.path,
            methods: vec![endpoint.method.clone()],
            is_open: endpoint.access == Access::Open,
            allow: HeaderValue::from_static(""),
        }
    }

    fn add<S>(&mut self, endpoint: &Endpoint<S>) -> Result<(), Conflict> {
        let (path, method) = (self.path, endpoint.method.clone());
        if self.methods.contains(&method) {
            return Err(Conflict::Twice { method, path });
        }
        if self.is_open != (endpoint.access == Access::Open) {
            return Err(Conflict::Mixed { path });
        }
        self.methods.push(method);
        Ok(())
    }

    /// The methods that the path takes. What answers `GET` answers `HEAD`.
    fn allowed(&self) -> Vec<&str> {
        let head = |method: &Method| (*method == Method::GET).then_some("HEAD");
        self.methods.iter().flat_map(|method| [Some(method.as_str()), head(method)]).flatten().collect()
    }
}

impl<S> Matched<'_, S> {
    /// What authorization and metrics need to know. An open path needs no key to refuse a method; for any other request without an
    /// endpoint there is no rule, and admission asks for a key.
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint.rule()),
            Self::OtherMethod(resource) if resource.is_open => {
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
