//! The host's C++ compiler, and the cache of what it made.

use crate::device::{self, Define};
use crate::error::{CudaError, Result};
use crate::kernels;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

/// Plain arithmetic (no contraction: a kernel that wants a fused product says `fmaf`), and shared memory that is cast freely.
const FLAGS: &[&str] = &[
    "-O2",
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-DTL_EMULATED",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fvisibility=hidden",
    "-w",
];

/// How the compiler is called.
#[derive(Debug, Clone)]
pub(super) struct Compiler {
    words: Vec<String>,
    version: String,
}

/// `CXX`, else `c++`.
///
/// # Errors
/// [`CudaError::Missing`] when it does not run.
pub(super) fn compiler() -> Result<&'static Compiler> {
    static FOUND: OnceLock<Option<Compiler>> = OnceLock::new();
    let command = env::var("CXX").ok().filter(|c| !c.trim().is_empty()).unwrap_or_else(|| "c++".into());
    let found = FOUND.get_or_init(|| {
        let words: Vec<String> = command.split_whitespace().map(String::from).collect();
        let output = Command::new(&words[0]).args(&words[1..]).arg("--version").output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(Compiler { words, version })
    });
    found.as_ref().ok_or_else(|| CudaError::Missing {
        what: "C++ compiler",
        looked_for: command,
        advice: "install g++ or clang++, or set CXX".into(),
    })
}

/// Beside the kernels compiled for GPUs; a machine without a home folder keeps them in the temporary folder.
fn cache_folder() -> PathBuf {
    device::cache_folder().unwrap_or_else(|| env::temp_dir().join("treeline")).join("emulated")
}

/// `file` and all that it includes, in the order of first mention.
fn sources(file: &str) -> Vec<(&str, &'static str)> {
    let mut found: Vec<(&str, &'static str)> = Vec::new();
    let mut next = vec!["emulate_host.cuh", file];
    while let Some(name) = next.pop() {
        if found.iter().any(|(n, _)| *n == name) {
            continue;
        }
        // A name that is not there is left to the compiler, which says where it is included.
        let Some(text) = kernels::text(name) else { continue };
        found.push((name, text));
        let includes = text.lines().filter_map(|l| l.trim().strip_prefix("#include \"")?.split('"').next());
        next.extend(includes);
    }
    found
}

fn problem(path: &Path) -> impl FnOnce(std::io::Error) -> CudaError {
    let path = path.display().to_string();
    move |source| CudaError::Io { path, source }
}

/// The shared library of `file` under these defines, compiled unless the cache has it.
///
/// # Errors
/// [`CudaError::Compile`] with the compiler's words; [`CudaError::Io`].
pub(super) fn library(file: &str, defines: &[Define]) -> Result<PathBuf> {
    let compiler = compiler()?;
    let sources = sources(file);
    if !sources.iter().any(|(name, _)| *name == file) {
        let log = "there is no such file".into();
        return Err(CudaError::Compile { file: file.into(), arch: "host".into(), log });
    }
    let defines: Vec<String> = defines.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
    let mut hash = Sha256::new();
    let parts = compiler.words.iter().chain([&compiler.version]).chain(&defines).map(String::as_str);
    let texts = sources.iter().flat_map(|(name, text)| [*name, text]);
    for part in parts.chain(FLAGS.iter().copied()).chain(texts) {
        // With the length, so that no two lists of parts look the same.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let key: String = hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect();
    let folder = cache_folder();
    let path = folder.join(format!("{}-{key}.so", file.trim_end_matches(".cu")));
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(&folder).map_err(problem(&folder))?;
    let work = tempfile::tempdir_in(&folder).map_err(problem(&folder))?;
    for (name, text) in &sources {
        fs::write(work.path().join(name), text).map_err(problem(work.path()))?;
    }
    let unit = format!("#include \"emulate_host.cuh\"\nnamespace {{\n#include \"{file}\"\n}}\n");
    fs::write(work.path().join("unit.cc"), unit).map_err(problem(work.path()))?;
    let mut command = Command::new(&compiler.words[0]);
    command.args(&compiler.words[1..]).args(FLAGS).args(&defines).args(["unit.cc", "-o", "unit.so"]);
    let output = command.current_dir(work.path()).output().map_err(problem(Path::new(&compiler.words[0])))?;
    if !output.status.success() {
        let log = format!("{}\n{}", defines.join(" "), String::from_utf8_lossy(&output.stderr));
        return Err(CudaError::Compile { file: file.into(), arch: "host".into(), log });
    }
    // A rename is whole or not at all: another process that compiles the same meanwhile writes the same bytes.
    fs::rename(work.path().join("unit.so"), &path).map_err(problem(&path))?;
    Ok(path)
}
