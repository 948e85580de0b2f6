//! Matrix products by cuBLASLt.

use super::find;
use crate::error::{CudaError, Result};
use cudarc::cublaslt::sys::{self, cublasStatus_t};
use cudarc::driver::sys::CUstream;
use std::ffi::{CStr, c_void};

/// The algorithm for a problem, in the library's own encoding, which one version of it can store and read back.
pub(crate) type Algorithm = sys::cublasLtMatmulAlgo_t;

/// Element types of [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    F32,
    Bf16,
}

impl Type {
    fn raw(self) -> sys::cudaDataType {
        match self {
            Self::F32 => sys::cudaDataType::CUDA_R_32F,
            Self::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        }
    }
}

/// A matrix, column-major.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub dtype: Type,
    pub rows: usize,
    pub columns: usize,
    /// Elements from one column to the next.
    pub stride: usize,
    /// Elements from one matrix of a batch to the next.
    pub batch_stride: usize,
    /// Bytes that every address of it is a multiple of.
    pub alignment: u32,
}

/// Refuses a failed call in the library's words.
fn check(code: cublasStatus_t, call: &str) -> Result<()> {
    if code == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: gives a constant, terminated string.
    let words = unsafe { CStr::from_ptr(sys::cublasLtGetStatusString(code)) };
    Err(CudaError::Call { call: format!("cuBLASLt, {call},"), why: words.to_string_lossy().into_owned() })
}

/// The library on one GPU.
#[derive(Debug)]
pub(crate) struct Handle(sys::cublasLtHandle_t);

// SAFETY: the library's functions may be called from any thread with one handle.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Opens it on the GPU of the calling thread's context.
    ///
    /// # Errors
    /// [`CudaError::Missing`], or the library's.
    pub fn new() -> Result<Self> {
        // SAFETY: only loads the vendor's library.
        find::ensure(&find::BLAS, || unsafe { sys::is_culib_present() })?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle; destroyed when dropped.
        check(unsafe { sys::cublasLtCreate(&raw mut handle) }, "opening")?;
        Ok(Self(handle))
    }

    /// Version, as the library counts it.
    pub fn version() -> usize {
        // SAFETY: no arguments; a handle exists wherever this is asked, so the library is loaded.
        unsafe { sys::cublasLtGetVersion() }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened once, destroyed once.
        let _ = unsafe { sys::cublasLtDestroy(self.0) };
    }
}

/// d = aᵀ · b (+ d), for each problem of a batch.
#[derive(Debug)]
pub(crate) struct Problem {
    desc: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    alignments: [u32; 3],
    add: bool,
}

// SAFETY: plain descriptions in host memory, only read after they are made.
unsafe impl Send for Problem {}

impl Problem {
    /// Describes it; `pedantic` keeps f32 products in f32.
    ///
    /// # Errors
    /// The library's.
    pub fn new(a: Shape, b: Shape, d: Shape, batch: usize, add: bool, pedantic: bool) -> Result<Self> {
        use sys::cublasComputeType_t as Compute;
        let compute = if pedantic { Compute::CUBLAS_COMPUTE_32F_PEDANTIC } else { Compute::CUBLAS_COMPUTE_32F };
        let none = std::ptr::null_mut();
        let alignments = [a.alignment, b.alignment, d.alignment];
        let mut problem = Self { desc: none, layouts: [std::ptr::null_mut(); 3], alignments, add };
        // SAFETY: writes one handle; destroyed when dropped.
        let code = unsafe { sys::cublasLtMatmulDescCreate(&raw mut problem.desc, compute, Type::F32.raw()) };
        check(code, "describing a product")?;
        let transposed: i32 = 1;
        let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        // SAFETY: reads one integer.
        let code = unsafe { sys::cublasLtMatmulDescSetAttribute(problem.desc, attribute, at(&transposed), 4) };
        check(code, "describing a product")?;
        for (slot, shape) in problem.layouts.iter_mut().zip([a, b, d]) {
            let (rows, columns, stride) = (shape.rows as u64, shape.columns as u64, shape.stride as i64);
            // SAFETY: writes one handle; destroyed when dropped.
            let code = unsafe { sys::cublasLtMatrixLayoutCreate(slot, shape.dtype.raw(), rows, columns, stride) };
            check(code, "describing a matrix")?;
            if batch > 1 {
                use sys::cublasLtMatrixLayoutAttribute_t as A;
                let (count, step) = (batch as i32, shape.batch_stride as i64);
                // SAFETY: reads one integer of each size.
                unsafe {
                    let code = sys::cublasLtMatrixLayoutSetAttribute(
                        *slot,
                        A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                        at(&count),
                        4,
                    );
                    check(code, "describing a batch")?;
                    let attribute = A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
                    check(sys::cublasLtMatrixLayoutSetAttribute(*slot, attribute, at(&step), 8), "describing a batch")?;
                }
            }
        }
        Ok(problem)
    }

    /// At most `most` algorithms, best first by the library's estimate. Only those whose sums have one order: partial sums meet
    /// in the workspace, in f32.
    ///
    /// # Errors
    /// The library's.
    pub fn algorithms(&self, handle: &Handle, workspace: usize, most: usize) -> Result<Vec<Algorithm>> {
        use sys::cublasLtMatmulPreferenceAttributes_t as P;
        let preference = Preference::new()?;
        let reductions = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        let [a, b, d] = self.alignments;
        preference.set(P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace)?;
        preference.set(P::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions)?;
        preference.set(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a)?;
        preference.set(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b)?;
        preference.set(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d)?;
        preference.set(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d)?;
        // SAFETY: plain numbers, for which zero bytes are a value.
        let mut results: Vec<sys::cublasLtMatmulHeuristicResult_t> = vec![unsafe { std::mem::zeroed() }; most];
        let mut found = 0;
        let [a, b, d] = self.layouts;
        // SAFETY: all descriptions are made; at most `most` results are written.
        let code = unsafe {
            let (list, count) = (results.as_mut_ptr(), &raw mut found);
            sys::cublasLtMatmulAlgoGetHeuristic(handle.0, self.desc, a, b, d, d, preference.0, most as i32, list, count)
        };
        if code == cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED {
            return Ok(Vec::new());
        }
        check(code, "choosing an algorithm")?;
        results.truncate(usize::try_from(found).unwrap_or(0));
        results.retain(|r| r.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS && r.workspaceSize <= workspace);
        Ok(results.into_iter().map(|r| r.algo).collect())
    }

    /// Whether `algorithm` (read back from a file, say) serves this problem.
    pub fn serves(&self, handle: &Handle, algorithm: &Algorithm, workspace: usize) -> bool {
        let [a, b, d] = self.layouts;
        // SAFETY: plain numbers, for which zero bytes are a value.
        let mut result: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        // SAFETY: all descriptions are made; one result is written.
        let code = unsafe { sys::cublasLtMatmulAlgoCheck(handle.0, self.desc, a, b, d, d, algorithm, &raw mut result) };
        code == cublasStatus_t::CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace
    }

    /// Queues it.
    ///
    /// # Errors
    /// The library's.
    pub fn run(
        &self,
        handle: &Handle,
        algorithm: &Algorithm,
        at: [u64; 3],
        workspace: (u64, usize),
        stream: CUstream,
    ) -> Result<()> {
        let (alpha, beta) = (1.0f32, if self.add { 1.0f32 } else { 0.0 });
        let [a, b, d] = at.map(|p| p as *mut c_void);
        let [la, lb, ld] = self.layouts;
        // SAFETY: all descriptions are made, the scalars are read during the call, the addresses are device memory.
        let code = unsafe {
            let (one, add) = (&raw const alpha, &raw const beta);
            let (one, add, space) = (one.cast(), add.cast(), workspace.0 as *mut c_void);
            let (stream, size) = (stream.cast(), workspace.1);
            sys::cublasLtMatmul(
                handle.0, self.desc, one, a, la, b, lb, add, d, ld, d, ld, algorithm, space, size, stream,
            )
        };
        check(code, "multiplying")
    }
}

impl Drop for Problem {
    fn drop(&mut self) {
        // SAFETY: each made once, destroyed once, null when it was not made.
        unsafe {
            if !self.desc.is_null() {
                let _ = sys::cublasLtMatmulDescDestroy(self.desc);
            }
            for layout in self.layouts.iter().filter(|l| !l.is_null()) {
                let _ = sys::cublasLtMatrixLayoutDestroy(*layout);
            }
        }
    }
}

fn at<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Result<Self> {
        let mut preference = std::ptr::null_mut();
        // SAFETY: writes one handle; destroyed when dropped.
        check(unsafe { sys::cublasLtMatmulPreferenceCreate(&raw mut preference) }, "choosing an algorithm")?;
        Ok(Self(preference))
    }

    fn set<T: Copy>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<()> {
        // SAFETY: reads one value of the attribute's type.
        let code = unsafe { sys::cublasLtMatmulPreferenceSetAttribute(self.0, attribute, at(value), size_of::<T>()) };
        check(code, "choosing an algorithm")
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}
