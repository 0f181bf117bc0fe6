//! The images that a create may name.

mod catalogue;
mod registries;
