//! The host's C++ compiler, and the cache of what it made.

use crate::device::{self, Define};
use crate::error::{CudaError, Result};
use crate::kernels;
use sha2::{Digest, Sha256};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};
use tempfile::TempDir;

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

/// Beside the kernels compiled for GPUs.
fn cache_folder() -> Option<PathBuf> {
    device::cache_folder().map(|f| f.join("emulated"))
}

/// `file` and all that it includes, in the order of first mention.
fn sources(file: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut found: Vec<(&'static str, &'static str)> = Vec::new();
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

/// One file under one set of defines.
pub(super) struct Unit {
    /// Names what it compiles to: the hash of everything that determines it is a part of it.
    pub name: String,
    compiler: &'static Compiler,
    file: &'static str,
    defines: Vec<String>,
    sources: Vec<(&'static str, &'static str)>,
}

/// A compiled file. What could not be kept is deleted with this, which a library that is open by then outlives.
pub(super) struct Compiled {
    pub path: PathBuf,
    _work: Option<TempDir>,
}

/// `file` under these defines.
///
/// # Errors
/// [`CudaError::Missing`] without a compiler, [`CudaError::Compile`] when there is no such file.
pub(super) fn unit(file: &'static str, defines: &[Define]) -> Result<Unit> {
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
    let name = format!("{}-{key}.so", file.trim_end_matches(".cu"));
    Ok(Unit { name, compiler, file, defines, sources })
}

impl Unit {
    /// Its shared library, compiled unless the cache has it whole.
    ///
    /// # Errors
    /// [`CudaError::Compile`] with the compiler's words; [`CudaError::Io`].
    pub(super) fn library(&self) -> Result<Compiled> {
        self.library_in(cache_folder().as_deref())
    }

    fn library_in(&self, folder: Option<&Path>) -> Result<Compiled> {
        let place = folder.map(|f| f.join(&self.name));
        if let Some(place) = place.as_ref().filter(|p| whole(p)) {
            return Ok(Compiled { path: place.clone(), _work: None });
        }
        // A folder that cannot be written costs time only.
        let inside = folder.and_then(|f| fs::create_dir_all(f).and_then(|()| tempfile::tempdir_in(f)).ok());
        let work = inside.map_or_else(tempfile::tempdir, Ok).map_err(problem(&env::temp_dir()))?;
        let made = self.compile(work.path())?;
        seal(&made).map_err(problem(&made))?;
        // A rename is whole or not at all: another process that compiles the same meanwhile writes the same bytes.
        match place.filter(|place| fs::rename(&made, place).is_ok()) {
            Some(path) => Ok(Compiled { path, _work: None }),
            None => Ok(Compiled { path: made, _work: Some(work) }),
        }
    }

    /// Compiles it in an empty folder.
    fn compile(&self, work: &Path) -> Result<PathBuf> {
        for (name, text) in &self.sources {
            fs::write(work.join(name), text).map_err(problem(work))?;
        }
        let unit = format!("#include \"emulate_host.cuh\"\nnamespace {{\n#include \"{}\"\n}}\n", self.file);
        fs::write(work.join("unit.cc"), unit).map_err(problem(work))?;
        let words = &self.compiler.words;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(FLAGS).args(&self.defines).args(["unit.cc", "-o", "unit.so"]);
        let output = command.current_dir(work).output().map_err(problem(Path::new(&words[0])))?;
        let made = work.join("unit.so");
        if output.status.success() && made.is_file() {
            return Ok(made);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = if output.status.success() { "the compiler said nothing and made no file" } else { &*said };
        let log = format!("{} {}\n{said}", words.join(" "), self.defines.join(" "));
        Err(CudaError::Compile { file: self.file.into(), arch: "host".into(), log })
    }
}

/// Bytes of the hash behind a library's own, which the loader does not look at.
const SEAL: usize = 32;

/// Appends the hash of a file to it. The loader of a truncated library would end the process, not fail.
fn seal(path: &Path) -> std::io::Result<()> {
    let hash = Sha256::digest(fs::read(path)?);
    fs::OpenOptions::new().append(true).open(path)?.write_all(&hash)
}

/// Whether a file is as it was sealed.
fn whole(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap_or_default();
    bytes.split_last_chunk::<SEAL>().is_some_and(|(rest, hash)| Sha256::digest(rest)[..] == hash[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some unit; `None`, said aloud, without a compiler.
    #[allow(clippy::print_stderr, reason = "a skipped test says so")]
    fn some() -> Option<Unit> {
        unit("fill.cu", &[("ACT_BF16", 1)]).inspect_err(|e| eprintln!("skipped: {e}")).ok()
    }

    #[test]
    fn a_damaged_library_is_compiled_anew() {
        let Some(unit) = some() else { return };
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep");
        let kept = unit.library_in(Some(&folder)).unwrap().path;
        assert_eq!(kept, folder.join(&unit.name));
        let good = fs::read(&kept).unwrap();
        // A whole one is taken as it is.
        let mut marked = good[..good.len() - SEAL].to_vec();
        marked.push(7);
        fs::write(&kept, &marked).unwrap();
        seal(&kept).unwrap();
        let sealed = fs::read(&kept).unwrap();
        unit.library_in(Some(&folder)).unwrap();
        assert!(fs::read(&kept).unwrap() == sealed, "a whole library was not used");
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        for damaged in [&good[..0], &good[..good.len() / 2], &good[..good.len() - 1], b"garbage", &flipped] {
            fs::write(&kept, damaged).unwrap();
            assert_eq!(unit.library_in(Some(&folder)).unwrap().path, kept);
            assert!(whole(&kept), "{} bytes were used", damaged.len());
        }
        // What compiling took is gone.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_time_only() {
        let Some(unit) = some() else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join(&unit.name)).unwrap();
        for folder in [None, Some(file.as_path()), Some(Path::new("/proc/nowhere")), Some(taken.as_path())] {
            let compiled = unit.library_in(folder).unwrap();
            assert!(whole(&compiled.path), "{folder:?}");
            let path = compiled.path.clone();
            drop(compiled);
            assert!(!path.exists(), "{folder:?}: {}", path.display());
        }
    }

    #[test]
    fn a_compiler_that_makes_no_file_is_an_error() {
        let Some(unit) = some() else { return };
        let says = |words: &[&str]| {
            let words = words.iter().map(|w| (*w).to_owned()).collect();
            let compiler: &'static Compiler = Box::leak(Box::new(Compiler { words, version: String::new() }));
            let unit = Unit { compiler, name: unit.name.clone(), defines: unit.defines.clone(), ..some().unwrap() };
            unit.library_in(None).err().unwrap().to_string()
        };
        assert!(says(&["true"]).contains("made no file"), "{}", says(&["true"]));
        assert!(says(&["false", "-x"]).contains("fill.cu does not compile for host:\nfalse -x -DACT_BF16=1"));
        assert!(says(&["no-such-compiler"]).starts_with("no-such-compiler: "), "{}", says(&["no-such-compiler"]));
    }
}
