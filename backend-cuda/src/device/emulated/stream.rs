//! What can be queued, and recorded by a capture.

use super::library::EmulatedKernel;
use super::{State, gemm};
use crate::device::{Gemm, Launch};
use crate::error::Result;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The time at which an event was reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Mark(Arc<Mutex<Option<Instant>>>);

impl Mark {
    pub(super) fn time(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) enum Operation {
    /// Between device memory, pinned memory, or both.
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Fill {
        at: u64,
        byte: u8,
        bytes: usize,
    },
    Kernel {
        kernel: EmulatedKernel,
        launch: Launch,
        args: Vec<u8>,
    },
    Gemm(Gemm),
    Mark(Mark),
}

impl Operation {
    pub(super) fn run(&self, state: &State) -> Result<()> {
        match self {
            Self::Copy { to, from, bytes } => {
                let memory = state.memory();
                memory.check("copy", *to, *bytes)?;
                memory.check("copy", *from, *bytes)?;
                // SAFETY: both ranges lie in live allocations (checked, and the lock keeps them alive); they may overlap.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) };
                Ok(())
            }
            Self::Fill { at, byte, bytes } => {
                let memory = state.memory();
                memory.check("fill", *at, *bytes)?;
                // SAFETY: the range lies in a live allocation (checked, and the lock keeps it alive).
                unsafe { std::ptr::write_bytes(*at as *mut u8, *byte, *bytes) };
                Ok(())
            }
            Self::Kernel { kernel, launch, args } => {
                let ranges = state.memory().ranges();
                kernel.run(*launch, args, &ranges, state.backward())?;
                state.memory().check_guards(kernel.name())
            }
            Self::Gemm(gemm) => gemm::run(gemm, &state.memory()),
            Self::Mark(mark) => {
                *mark.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                Ok(())
            }
        }
    }
}
