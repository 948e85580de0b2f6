//! Kernel sources to machine code, with a cache on disk.
//!
//! An entry is named by the hash of everything that determines it: the file, what it includes, defines, flags, the compiler's
//! version and the architecture. It is written to a temporary file and renamed, and carries the hash of its content, so that a
//! damaged entry is compiled anew. A folder that cannot be written is no error: it only costs time.

use crate::device::{Arch, Define};
use crate::error::{CudaError, Result};
use crate::ffi::nvrtc;
use crate::kernels;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Machine code of one kernel file under one set of defines.
#[derive(Debug, Clone)]
pub struct Cubin {
    /// The code, an ELF file.
    pub image: Vec<u8>,
    /// The compiler's words.
    pub log: String,
}

/// What one kernel takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Name of the kernel.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of stack of a thread.
    pub stack: u32,
    /// Bytes of registers written to memory for want of registers.
    pub spill_stores: u32,
    /// Bytes of registers read back.
    pub spill_loads: u32,
    /// Bytes of static shared memory of a block.
    pub shared: u32,
}

impl Cubin {
    /// What each kernel of the file takes, in the compiler's order.
    #[must_use]
    pub fn resources(&self) -> Vec<Resources> {
        resources(&self.log)
    }
}

/// Compiles `file` of `kernels/` under these defines, or takes it from the cache.
///
/// # Errors
/// [`CudaError::Missing`] without NVRTC, [`CudaError::Compile`] with the compiler's words.
pub fn cubin(file: &str, defines: &[Define], arch: Arch) -> Result<Cubin> {
    let none = || CudaError::Kernel { kernel: file.into(), why: "there is no such file in kernels/".into() };
    let source = kernels::text(file).ok_or_else(none)?;
    compile(file, source, defines, arch, cache_folder().as_deref())
}

fn compile(file: &str, source: &str, defines: &[Define], arch: Arch, cache: Option<&Path>) -> Result<Cubin> {
    let (major, minor) = nvrtc::version()?;
    let headers = included(source);
    // The last flag makes the compiler tell what each kernel takes.
    let mut options =
        vec![format!("--gpu-architecture={}", arch.name()), "-std=c++17".into(), "--ptxas-options=-v".into()];
    options.extend(defines.iter().map(|(name, value)| format!("-D{name}={value}")));
    let place = cache.map(|folder| {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        part(&format!("NVRTC {major}.{minor}"));
        [file, source].iter().for_each(|t| part(t));
        headers.iter().for_each(|(name, text)| [name, text].iter().for_each(|t| part(t)));
        options.iter().for_each(|o| part(o));
        folder.join(format!("{}-{}.cubin", file.trim_end_matches(".cu"), hex(&hash.finalize()[..16])))
    });
    if let Some(cubin) = place.as_deref().and_then(read) {
        return Ok(cubin);
    }
    let output = nvrtc::compile(file, source, &headers, &options)?.map_err(|failure| CudaError::Compile {
        file: file.into(),
        arch: arch.name().into(),
        log: failure.log,
    })?;
    let cubin = Cubin { image: output.cubin, log: output.log };
    if let Some(place) = place {
        // Without the cache everything still runs.
        let _ = write(&place, &cubin);
    }
    Ok(cubin)
}

/// Where compiled kernels are kept: `TREELINE_CACHE`, else `treeline` in `XDG_CACHE_HOME`, else `~/.cache/treeline`.
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let system = || variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|h| h.join(".cache")));
    variable("TREELINE_CACHE").or_else(|| system().map(|s| s.join("treeline")))
}

/// Beginning of the names of the emulator's headers, which the compiler for GPUs never reads.
const EMULATOR: &str = "emulate";

/// The files of `kernels/` that a source includes, directly or not, by name.
fn included(source: &str) -> Vec<(&'static str, &'static str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    let mut open = vec![source];
    while let Some(text) = open.pop() {
        for line in text.lines() {
            let Some(rest) = line.trim_start().strip_prefix("#include") else { continue };
            let name = rest.trim().trim_matches('"');
            let known = kernels::FILES.iter().find(|(n, _)| *n == name && !n.starts_with(EMULATOR));
            if let Some(&file) = known.filter(|f| !found.contains(f)) {
                found.push(file);
                open.push(file.1);
            }
        }
    }
    found.sort_unstable();
    found
}

const MAGIC: &str = "treeline cubin 1";

fn hex(bytes: &[u8]) -> String {
    // Writing to a string cannot fail.
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

/// Line 1: magic, hash of the rest, length of the log; then the log; then the code.
fn write(place: &Path, cubin: &Cubin) -> std::io::Result<()> {
    let folder = place.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let mut hash = Sha256::new();
    hash.update(&cubin.log);
    hash.update(&cubin.image);
    writeln!(file, "{MAGIC} {} {}", hex(&hash.finalize()), cubin.log.len())?;
    file.write_all(cubin.log.as_bytes())?;
    file.write_all(&cubin.image)?;
    file.persist(place)?;
    Ok(())
}

fn read(place: &Path) -> Option<Cubin> {
    let bytes = std::fs::read(place).ok()?;
    let end = bytes.iter().position(|b| *b == b'\n')?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix(MAGIC)?.trim();
    let (hash, length) = head.split_once(' ')?;
    let rest = &bytes[end + 1..];
    if hex(&Sha256::digest(rest)) != hash {
        return None;
    }
    let (log, image) = rest.split_at_checked(length.parse().ok()?)?;
    Some(Cubin { image: image.to_vec(), log: std::str::from_utf8(log).ok()?.to_owned() })
}

/// Reads the assembler's report: each entry function, then its stack and spills (those of functions that it calls, too), then its
/// registers and shared memory.
fn resources(log: &str) -> Vec<Resources> {
    let mut found: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let entry = rest.split('\'').next().unwrap_or_default().to_owned();
            found.push(Resources { entry, ..Resources::default() });
        }
        let Some(now) = found.last_mut() else { continue };
        let before = |what: &str| {
            let (head, _) = line.split_once(what)?;
            head.split_whitespace().next_back()?.parse::<u32>().ok()
        };
        now.stack = now.stack.max(before(" bytes stack frame").unwrap_or(0));
        now.spill_stores += before(" bytes spill stores").unwrap_or(0);
        now.spill_loads += before(" bytes spill loads").unwrap_or(0);
        now.registers = now.registers.max(before(" registers").unwrap_or(0));
        now.shared = now.shared.max(before(" bytes smem").unwrap_or(0));
    }
    found.sort_by(|a, b| a.entry.cmp(&b.entry));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_cache_entry_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/x.cubin");
        let cubin = Cubin { image: (0..200).collect(), log: "two\nlines".into() };
        write(&place, &cubin).unwrap();
        let back = read(&place).unwrap();
        assert_eq!((back.image, back.log), (cubin.image, cubin.log));
        let whole = std::fs::read(&place).unwrap();
        for at in [0, 20, 90, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&place, bytes).unwrap();
            assert!(read(&place).is_none(), "byte {at}");
        }
        for length in [0, 10, whole.len() - 1] {
            std::fs::write(&place, &whole[..length]).unwrap();
            assert!(read(&place).is_none(), "{length} bytes");
        }
        assert!(read(&folder.path().join("none")).is_none());
    }

    #[test]
    fn the_assemblers_report_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
            ptxas info    : Function properties for k\n\
            ptxas         .     920 bytes stack frame, 1364 bytes spill stores, 1808 bytes spill loads\n\
            ptxas info    : Used 32 registers, used 0 barriers, 920 bytes cumulative stack size\n\
            ptxas info    : Compiling entry function 'j' for 'sm_90a'\n\
            ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 12 registers, used 1 barriers, 132 bytes smem\n";
        let (j, k) = ("j".to_owned(), "k".to_owned());
        let want = [
            Resources { entry: j, registers: 12, stack: 0, spill_stores: 0, spill_loads: 0, shared: 132 },
            Resources { entry: k, registers: 32, stack: 920, spill_stores: 1364, spill_loads: 1808, shared: 0 },
        ];
        assert_eq!(resources(log), want);
        assert_eq!(resources(""), []);
    }

    #[test]
    fn headers_are_found_through_headers() {
        let names: Vec<&str> =
            included("#include \"rows.cuh\"\n#include \"nowhere.cuh\"\n").iter().map(|f| f.0).collect();
        assert!(names.contains(&"rows.cuh") && names.contains(&"treeline.cuh"), "{names:?}");
        assert!(names.iter().all(|n| !n.starts_with(EMULATOR)) && !names.contains(&"nowhere.cuh"), "{names:?}");
    }

    /// What `compile` gives; `None`, said aloud, without NVRTC.
    #[allow(clippy::print_stderr, reason = "a skipped test says so")]
    fn compiled(source: &str, cache: Option<&Path>) -> Option<Result<Cubin>> {
        match compile("t.cu", source, &[("N", 64)], Arch::Sm90a, cache) {
            Err(e @ CudaError::Missing { .. }) => {
                assert!(std::env::var_os("REQUIRE_NVRTC").is_none_or(|v| v != "1"), "REQUIRE_NVRTC=1, but: {e}");
                eprintln!("skipped: {e}");
                None
            }
            other => Some(other),
        }
    }

    #[test]
    fn spills_are_seen_and_errors_name_the_line() {
        // More live numbers than the registers that two blocks of 1024 threads leave to each.
        let hungry = "extern \"C\" __global__ void __launch_bounds__(1024, 2) hungry(float *p) {\n\
            float a[N]; for (int i = 0; i < N; i++) a[i] = p[i * N + threadIdx.x];\n\
            for (int r = 0; r < 9; r++) for (int i = 0; i < N; i++) a[i] = a[i] * a[(i + 1) % N] + a[(i * 7 + 3) % N];\n\
            for (int i = 0; i < N; i++) p[i * N + threadIdx.x] = a[i]; }";
        let Some(cubin) = compiled(hungry, None) else { return };
        let found = cubin.unwrap().resources();
        assert!(found[0].spill_stores > 0 && found[0].spill_loads > 0 && found[0].stack > 0, "{found:?}");
        let wrong = compiled("\n\nint x = y;\n", None).unwrap().unwrap_err().to_string();
        assert!(wrong.contains("t.cu(3)") && wrong.contains("\"y\"") && wrong.contains("sm_90a"), "{wrong}");
    }

    #[test]
    fn the_cache_is_used_and_a_folder_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let source = "extern \"C\" __global__ void k(int *p) { *p = N; }";
        let Some(first) = compiled(source, Some(folder.path())) else { return };
        let first = first.unwrap();
        let entries = || std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
        let [entry] = &entries()[..] else { panic!("{:?}", entries()) };
        // An entry is trusted: a mark put into it comes back.
        let marked = Cubin { log: "marked".into(), ..first.clone() };
        write(entry, &marked).unwrap();
        assert_eq!(compiled(source, Some(folder.path())).unwrap().unwrap().log, "marked");
        // A damaged one is not.
        std::fs::write(entry, b"garbage").unwrap();
        assert_eq!(compiled(source, Some(folder.path())).unwrap().unwrap().image, first.image);
        // Another text is another entry.
        compiled(&source.replace("= N", "= N + 1"), Some(folder.path())).unwrap().unwrap();
        assert_eq!(entries().len(), 2);
        let file = folder.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert_eq!(compiled(source, Some(&file)).unwrap().unwrap().image, first.image);
    }
}
