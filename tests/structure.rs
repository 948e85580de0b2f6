//! The invariants of ARCHITECTURE.md that can be read off the sources.

use crate::repo::{files, read, root};

/// Folder of each crate and the workspace crates that it may use.
const MAY_USE: [(&str, &[&str]); 8] = [
    ("core", &[]),
    ("checkpoint", &[]),
    ("policies", &["treeline-core"]),
    ("backend-cpu", &["treeline-core", "treeline-checkpoint"]),
    ("backend-sim", &["treeline-core", "treeline-policies", "treeline-checkpoint"]),
    ("backend-cuda", &["treeline-core", "treeline-checkpoint"]),
    (
        "experiments",
        &["treeline-core", "treeline-policies", "treeline-checkpoint", "treeline-cpu", "treeline-sim", "treeline-cuda"],
    ),
    (
        "tests",
        &[
            "treeline-core",
            "treeline-policies",
            "treeline-checkpoint",
            "treeline-cpu",
            "treeline-sim",
            "treeline-cuda",
            "treeline",
        ],
    ),
];

#[test]
fn dependencies_run_one_way() {
    for (folder, allowed) in MAY_USE {
        let manifest: toml::Table = read(&root().join(folder).join("Cargo.toml")).parse().unwrap();
        let Some(toml::Value::Table(dependencies)) = manifest.get("dependencies") else { continue };
        for name in dependencies.keys().filter(|n| n.starts_with("treeline")) {
            assert!(allowed.contains(&name.as_str()), "{folder} must not depend on {name}");
        }
    }
}

#[test]
fn core_is_pure() {
    let outside = [
        "std::fs",
        "std::io",
        "std::time",
        "std::thread",
        "std::env",
        "std::net",
        "std::process",
        "Instant::",
        "SystemTime",
        "thread_local!",
        "static mut",
        "OnceLock",
        "LazyLock",
        "println!",
        "eprintln!",
    ];
    for path in files(&[".rs"]).into_iter().filter(|p| p.to_string_lossy().contains("/core/src/")) {
        let text = read(&path);
        for word in outside {
            assert!(!text.contains(word), "{}: core must not use `{word}`", path.display());
        }
    }
}

#[test]
fn unsafe_code_lives_in_the_memory_map_and_the_cuda_engine_only() {
    for path in files(&[".rs"]) {
        let name = path.to_string_lossy().into_owned();
        let code = read(&path);
        let has = code.lines().any(|l| !l.trim_start().starts_with("//") && l.contains(concat!("unsafe", " {")));
        // A counting allocator in a test proves that a policy allocates nothing; that trait is unsafe to implement.
        let allowed = name.contains("/checkpoint/src/")
            || name.contains("/backend-cuda/src/")
            || name.contains("/tests/")
            || name.contains("/benches/");
        assert!(!has || allowed, "{name}: unsafe code outside checkpoint's memory map and the CUDA engine");
    }
    for folder in ["core", "policies", "backend-cpu", "backend-sim", "experiments"] {
        let lib = read(&root().join(folder).join("src/lib.rs"));
        assert!(lib.contains("#![forbid(unsafe_code)]"), "{folder}/src/lib.rs does not forbid unsafe code");
    }
}
