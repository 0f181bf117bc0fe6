//! `[e2b]`: the API that clients of E2B use.

use std::collections::BTreeMap;

use super::declare::table;
use super::images::check_name;
use super::problems::Problems;

table! {
    /// The E2B-compatible API; see [e2b.md](e2b.md). It is served at `api.DOMAIN` and `sandbox.DOMAIN` below `ports.domain`,
    /// and at the paths of that API on `http.listen`.
    pub struct E2b {
        /// Serve the API.
        enabled: bool = false, "boolean";
        /// All ports of a sandbox that was created through this API are open to everybody who knows its id, unless the create
        /// says otherwise, as with E2B. `false`: they always need the traffic token.
        public_ports: bool = true, "boolean";
        /// Templates by name, such as `[e2b.templates."large"]` with `image` and, optionally, `cpu`, `memory_mb` and `disk_mb`.
        /// By default, `base` is the image `e2b-base`, and `code-interpreter-v1` the image `code-interpreter`. Another name is
        /// the name of an image.
        templates: BTreeMap<String, E2bTemplate>, "table of templates";
    }
}

table! {
    /// An image, and resources. Absent resources are those of a create.
    pub struct E2bTemplate {
        image: String;
        cpu: Option<u32>, "vCPUs" in 1..=64;
        memory_mb: Option<u32>, "MB" in 128..=1 << 20;
        disk_mb: Option<u32>, "MB" in 512..=1 << 20;
    }
}

impl E2b {
    /// The image of a create that names no template, if the API is served.
    pub fn base_image(&self) -> Option<&str> {
        let own = self.templates.get("base").map(|template| template.image.as_str());
        self.enabled.then(|| own.unwrap_or("e2b-base"))
    }

    pub(super) fn check(&self) -> Result<(), Problems> {
        Problems::of(
            self.templates.iter().map(|(name, template)| {
                check_name(&format!("e2b.templates.\"{name}\".image"), &template.image)
            }),
        )
    }
}
