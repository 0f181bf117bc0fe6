//! Images that accounts name: where they come from, and room for them on this host.

mod layers_in_use;
mod room;
mod source;

use std::sync::Arc;

use engine::Template;
use image::Image;

pub use layers_in_use::layers_in_use;
pub use source::{PullWait, find_image, pull_missing};

/// The engine's view of an image.
pub fn template(image: &Arc<Image>) -> Template {
    let env = image.config.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let held: Arc<Image> = Arc::clone(image);
    Template::of_image(image.name.clone(), image.digest.clone(), image.layers.clone(), env).holding(held)
}
