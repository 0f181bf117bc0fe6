//! Makes the program 1.6 MB smaller: its relocations have the compact format, which glibc reads since 2.36 (Debian 12).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
}
