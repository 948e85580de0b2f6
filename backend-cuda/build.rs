//! Lists the kernel sources, so that adding a file to `kernels/` is all that a new kernel needs.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("kernels");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".cu") || n.ends_with(".cuh"))
        .collect();
    names.sort();
    let mut code =
        String::from("/// Every file of `kernels/`: name and text.\npub const FILES: &[(&str, &str)] = &[\n");
    for name in names {
        let path = folder.join(&name);
        println!("cargo::rerun-if-changed={}", path.display());
        writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string()).unwrap();
    }
    code.push_str("];\n");
    fs::write(PathBuf::from(env::var("OUT_DIR").unwrap()).join("kernels.rs"), code).unwrap();
}
