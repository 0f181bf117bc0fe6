//! Reads tar archives of strangers: recognizes their compression, and bounds what they cost the reader.
//!
//! ```text
//! input --Packed--> plain tar --Bounded--> tar::Archive --Bounds::next--> entries
//! ```
//!
//! The tar library reads the headers of an entry into memory before it returns the entry: long names, extended headers and maps of
//! sparse files. [`BoundedTar`] ends the archive with an error beyond [`HEADER_BYTES`] of them, and [`Bounds::next`] counts entries and the
//! bytes of their names. An error that a bound caused is found in the `io::Error` by [`Exceeded::of`].
//!
//! Called on blocking threads by the image store, which unpacks layers, and by the builder, which reads build contexts and the archives
//! that `ADD` unpacks. Nothing here writes; a failure leaves nothing behind.

mod bounds;
mod packed;

pub use bounds::{BoundedTar, Bounds, Exceeded, HEADER_BYTES, TarLimits, drain};
pub use packed::{ByteCount, Counted, LargeWindow, Packed, Raw, SMALL_WINDOW_LOG, Unsupported, WINDOW_LOG};

#[cfg(test)]
mod tests;
