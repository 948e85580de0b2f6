//! Device memory and page-locked host memory, typed and owned.

use super::backend::Backend;
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;
use std::sync::Arc;

/// An address in device memory, as kernels take it; 0 = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable, Default)]
#[repr(transparent)]
pub struct Ptr(pub u64);

impl Ptr {
    /// No memory.
    pub const NULL: Self = Self(0);

    /// `bytes` further on.
    #[must_use]
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// What `len` elements take, at least one byte; a size beyond all numbers is one that no memory has.
fn bytes<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>()).max(1)
}

/// Device memory for `len` elements, freed when dropped.
#[derive(Debug)]
pub struct Buffer<T> {
    at: u64,
    len: usize,
    backend: Arc<dyn Backend>,
    kind: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    pub(super) fn new(backend: Arc<dyn Backend>, what: &str, len: usize) -> Result<Self> {
        let at = backend.alloc(what, bytes::<T>(len))?;
        Ok(Self { at, len, backend, kind: PhantomData })
    }

    /// Address of the first element.
    #[must_use]
    pub fn ptr(&self) -> Ptr {
        Ptr(self.at)
    }

    /// Address of element `index`.
    #[must_use]
    pub fn at(&self, index: usize) -> Ptr {
        Ptr(self.at + (index * size_of::<T>()) as u64)
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.backend.release(self.at, (self.len * size_of::<T>()).max(1));
    }
}

/// Page-locked host memory for `len` elements.
#[derive(Debug)]
pub struct Pinned<T> {
    at: *mut T,
    len: usize,
    backend: Arc<dyn Backend>,
}

// SAFETY: the memory is owned by this value alone; access goes through `&self` and `&mut self` as for a `Vec`.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    pub(super) fn new(backend: Arc<dyn Backend>, len: usize) -> Result<Self> {
        let at = backend.alloc_pinned(bytes::<T>(len))?.cast();
        Ok(Self { at, len, backend })
    }

    /// The elements. After a [`super::Gpu::pull`], valid once the stream was waited for.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `at` holds `len` initialised elements (zeroed at allocation, `T` is plain data).
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    /// The elements, to be written. Not before earlier copies from here have run.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` makes the access unique on the host.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }

    /// Address and size of the first `len` elements.
    pub(super) fn bytes(&self, len: usize) -> Result<(*const u8, usize)> {
        if len > self.len {
            let why = format!("{len} elements of pinned memory that holds {}", self.len);
            return Err(CudaError::Call { call: "copy".into(), why });
        }
        Ok((self.at.cast_const().cast(), len * size_of::<T>()))
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        self.backend.release_pinned(self.at.cast(), (self.len * size_of::<T>()).max(1));
    }
}
