//! What can go wrong, each with what to change.

/// Result of this crate.
pub type Result<T> = std::result::Result<T, CudaError>;

/// Why the CUDA engine cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// A library is not on this machine.
    #[error("{what} was not found (looked for {looked_for}): {advice}")]
    Missing {
        /// The library, in words.
        what: &'static str,
        /// Names that were tried.
        looked_for: String,
        /// How to get it.
        advice: String,
    },
    /// There is no such GPU.
    #[error("GPU {ordinal} does not exist: this machine has {count}")]
    NoGpu {
        /// The GPU that was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The GPU cannot run this project's kernels.
    #[error("GPU {ordinal} ({name}) has compute capability {major}.{minor}: kernels exist for 9.0, 10.0 and 10.3")]
    Capability {
        /// The GPU.
        ordinal: usize,
        /// Its name.
        name: String,
        /// Compute capability.
        major: i32,
        /// Compute capability.
        minor: i32,
    },
    /// A call of the driver or of a library failed.
    #[error("{call} failed: {why}")]
    Call {
        /// The function and what it was for.
        call: String,
        /// The library's own words.
        why: String,
    },
    /// Device memory is used up.
    #[error("out of GPU memory: {what} needs {} MiB, {} MiB are free: {advice}", bytes >> 20, free >> 20)]
    Memory {
        /// What the memory was for.
        what: String,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes that are free.
        free: usize,
        /// Which setting to lower.
        advice: &'static str,
    },
    /// A kernel does not compile.
    #[error("{file} does not compile for {arch}:\n{log}")]
    Compile {
        /// The kernel file.
        file: String,
        /// The architecture.
        arch: String,
        /// The compiler's words.
        log: String,
    },
    /// A kernel or its launch does not fit.
    #[error("kernel `{kernel}`: {why}")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// What does not fit.
        why: String,
    },
    /// A setting is out of range.
    #[error("`{key}` {problem}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Target and drafter do not fit, or a shape is not served.
    #[error("{0}")]
    Model(String),
    /// The checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] treeline_checkpoint::Error),
    /// A file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What happened.
        source: std::io::Error,
    },
}
