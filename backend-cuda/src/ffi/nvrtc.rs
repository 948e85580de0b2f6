//! The run-time compiler: CUDA C++ to machine code.

use super::find;
use crate::error::{CudaError, Result};
use cudarc::nvrtc::sys::{self, nvrtcResult};
use std::ffi::{CStr, CString};

/// What came out of a compilation.
#[derive(Debug)]
pub(crate) struct Output {
    /// Machine code.
    pub cubin: Vec<u8>,
    /// The compiler's words.
    pub log: String,
}

/// A compilation that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The compiler's words.
    pub log: String,
}

/// Version of the compiler, `(major, minor)`.
///
/// # Errors
/// [`CudaError::Missing`].
pub(crate) fn version() -> Result<(i32, i32)> {
    // SAFETY: only loads the vendor's library.
    find::ensure(&find::NVRTC, || unsafe { sys::is_culib_present() })?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    check(unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }, "asking for NVRTC's version")?;
    Ok((major, minor))
}

/// Compiles `source`, which may include `headers` (name, text) by their names.
///
/// # Errors
/// [`CudaError::Missing`], or a call that fails. That the source does not compile is the inner result.
pub(crate) fn compile(
    name: &str,
    source: &str,
    headers: &[(&str, &str)],
    options: &[String],
) -> Result<std::result::Result<Output, Failure>> {
    version()?;
    let name = text(name)?;
    let source = text(source)?;
    let names = headers.iter().map(|(n, _)| text(n)).collect::<Result<Vec<_>>>()?;
    let texts = headers.iter().map(|(_, t)| text(t)).collect::<Result<Vec<_>>>()?;
    let options = options.iter().map(|o| text(o)).collect::<Result<Vec<_>>>()?;
    let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
    let (texts_at, names_at, options_at) = (pointers(&texts), pointers(&names), pointers(&options));
    let mut program = Program(std::ptr::null_mut());
    let count = headers.len() as i32;
    // SAFETY: all strings are terminated and outlive the program, which is dropped before them.
    let code = unsafe {
        let (at, headers, names) = (&raw mut program.0, texts_at.as_ptr(), names_at.as_ptr());
        sys::nvrtcCreateProgram(at, source.as_ptr(), name.as_ptr(), count, headers, names)
    };
    check(code, "making a program")?;
    // SAFETY: the program was made, the options are terminated.
    let code = unsafe { sys::nvrtcCompileProgram(program.0, options_at.len() as i32, options_at.as_ptr()) };
    let log = program.log()?;
    match code {
        nvrtcResult::NVRTC_SUCCESS => Ok(Ok(Output { cubin: program.cubin()?, log })),
        nvrtcResult::NVRTC_ERROR_COMPILATION => Ok(Err(Failure { log })),
        code => check(code, "compiling").map(|()| Err(Failure { log: String::new() })).map_err(|e| with_log(e, &log)),
    }
}

fn with_log(error: CudaError, log: &str) -> CudaError {
    match error {
        CudaError::Call { call, why } if !log.trim().is_empty() => {
            CudaError::Call { call, why: format!("{why}: {}", log.trim()) }
        }
        other => other,
    }
}

fn text(text: &str) -> Result<CString> {
    let why = || "a zero byte in the text".to_owned();
    CString::new(text).map_err(|_| CudaError::Call { call: "compiling".into(), why: why() })
}

fn check(code: nvrtcResult, call: &str) -> Result<()> {
    if code == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: gives a constant, terminated string.
    let words = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(code)) };
    Err(CudaError::Call { call: format!("NVRTC, {call},"), why: words.to_string_lossy().into_owned() })
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn log(&self) -> Result<String> {
        let mut size = 0;
        // SAFETY: the program was made; writes one integer.
        check(unsafe { sys::nvrtcGetProgramLogSize(self.0, &raw mut size) }, "asking for the log")?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size asked for.
        check(unsafe { sys::nvrtcGetProgramLog(self.0, bytes.as_mut_ptr().cast()) }, "asking for the log")?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is compiled; writes one integer.
        check(unsafe { sys::nvrtcGetCUBINSize(self.0, &raw mut size) }, "asking for machine code")?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size asked for.
        check(unsafe { sys::nvrtcGetCUBIN(self.0, bytes.as_mut_ptr().cast()) }, "asking for machine code")?;
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made once, destroyed once.
            let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
        }
    }
}
