//! Tests of the service without its sockets: real layers, engine and images, a fake driver and a store in memory.

mod bad;
mod bodies;
mod exactness;
mod execute;
mod files;
mod fixture;
mod guard;
mod images;
mod info;
mod mcp;
mod names;
mod network;
mod ports;
mod sandboxes;
mod streams;
mod tables;
mod unknown_fields;
mod usage;
