//! Makes sure that the folder of the built page exists, so that the crate compiles without it.

use std::path::Path;

fn main() {
    let dist = Path::new("../../web/dist");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", dist.display());
    if let Err(error) = std::fs::create_dir_all(dist) {
        println!("cargo:warning={} cannot be made: {error}", dist.display());
    }
}
