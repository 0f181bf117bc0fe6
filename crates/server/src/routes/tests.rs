//! The whole service but its sockets: real layers, engine and images, on a fake wall and a store in memory.

mod bad;
mod bodies;
mod execute;
mod files;
mod guard;
mod images;
mod network;
mod sandboxes;
mod streams;
mod tables;
mod usage;
mod world;
