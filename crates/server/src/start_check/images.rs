//! Names of images that no sandbox can have.

use rules::{AddedPattern, ImageReference, is_same_image, mistyped};
use service::image_access::AllowedImages;

use crate::app::{catalogue, images_dir};
use crate::config::Config;

/// A warning for each image that the configuration names, and that is neither known nor allowed.
pub fn unknown(config: &Config) -> Vec<String> {
    // Errors of these are reported elsewhere.
    let (Ok(catalogue), Ok(policy)) = (catalogue(config), config.images.policy()) else { return Vec::new() };
    let names: Vec<&str> = catalogue.names().collect();
    let mut patterns = policy.patterns();
    patterns.extend(AllowedImages::in_dir(&config.data_dir).read().unwrap_or_default());
    let is_known = |image: &str| {
        names.iter().any(|name| *name == image || is_same_image(name, image))
            || is_allowed(&patterns, image)
            || image::is_stored(&images_dir(config), image)
    };
    let unknown = named(config).into_iter().filter(|(_, image)| !is_known(image));
    unknown.map(|(place, image)| message(&place, &image, &names)).collect()
}

fn message(place: &str, image: &str, names: &[&str]) -> String {
    let meant = mistyped(image, names).map(|name| format!("; did you mean '{name}'?")).unwrap_or_default();
    format!("{place} that is neither in the catalogue nor on this host, and that no account may name{meant}")
}

fn is_allowed(patterns: &[AddedPattern], image: &str) -> bool {
    let Some(reference) = ImageReference::parse(image) else { return false };
    patterns.iter().any(|allowed| allowed.pattern.matches(&reference))
}

/// The images that the configuration names, with the beginnings of their messages.
fn named(config: &Config) -> Vec<(String, String)> {
    let isolation = &config.isolation;
    let pools = [
        ("pool", &config.pool),
        ("isolation.container.pool", &isolation.container.pool),
        ("isolation.gvisor.pool", &isolation.gvisor.pool),
    ];
    let as_key = |table: &str, image: &String| (format!("{table}.\"{image}\" names an image"), image.clone());
    let mut named: Vec<_> = pools
        .into_iter()
        .flat_map(|(table, pool)| pool.keys().map(move |image| as_key(table, image)))
        .collect();
    named.extend(isolation.images.keys().map(|image| as_key("isolation.images", image)));
    let as_value = |key: String, image: &String| (format!("{key} is '{image}', an image"), image.clone());
    if config.mcp.enabled {
        named.push(as_value("mcp.image".to_owned(), &config.mcp.image));
    }
    named.extend(
        config
            .e2b
            .templates
            .iter()
            .map(|(name, template)| as_value(format!("e2b.templates.\"{name}\".image"), &template.image)),
    );
    named
}
