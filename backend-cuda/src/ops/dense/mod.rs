//! Products of bf16 weights with a few rows, where a library's kernels are slower than the memory: several products that read
//! the same rows go in one launch, and the gates of a SwiGLU are applied where they are made.

mod call;

pub use call::{DenseCall, Glu, Queries};

use crate::device::{Buffer, Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// Outputs of one block.
const OUTPUTS: usize = 64;

/// Inputs of one step of a warp.
const STEP: usize = 32;

/// How a kernel for some number of rows is built.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Most rows, in multiples of eight.
    pub tiles: usize,
    /// Steps that weights are read ahead.
    pub depth: usize,
    /// Sixteens of outputs of a warp.
    pub fragments: usize,
    /// Warps of a block.
    pub warps: usize,
    /// Blocks that fit a multiprocessor.
    pub resident: usize,
}

impl Form {
    /// A form from its five numbers, in the order of the fields.
    #[must_use]
    pub const fn new(tiles: usize, depth: usize, fragments: usize, warps: usize, resident: usize) -> Self {
        Self { tiles, depth, fragments, warps, resident }
    }

    /// Bytes of shared memory: first the rows' part of the inputs, then the sums of the warps, as the kernel lays them out.
    fn shared(self, steps: usize, splits: usize) -> usize {
        let pitch = steps.div_ceil(splits).div_ceil(2) * 128 + 64;
        (self.tiles * 8 * pitch).max(self.parts() * self.tiles * 8 * (OUTPUTS + 4) * 4)
    }

    /// Warps that share the inputs of a block.
    fn parts(self) -> usize {
        self.warps * self.fragments * 16 / OUTPUTS
    }
}

/// What fits into the registers without spills, on every architecture.
const FORMS: [Form; 4] =
    [Form::new(1, 4, 2, 16, 1), Form::new(2, 4, 2, 16, 1), Form::new(3, 4, 2, 16, 1), Form::new(5, 4, 1, 16, 1)];

/// The kernels with their working memory. One serves all products of a stream, one after the other.
#[derive(Debug)]
pub struct Dense {
    kernels: Vec<(Form, Kernel)>,
    partial: Buffer<f32>,
    arrived: Buffer<u32>,
    /// Blocks that the working memory is for, where inputs are split.
    slots: usize,
    sms: usize,
    /// Bytes of shared memory of a multiprocessor.
    shared: usize,
}

fn refused(call: &DenseCall) -> CudaError {
    CudaError::Kernel { kernel: "dense".into(), why: format!("there is none for {call:?}") }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DenseArgs {
    x: Ptr,
    w: Ptr,
    glu: Ptr,
    y: Ptr,
    z: Ptr,
    partial: Ptr,
    arrived: Ptr,
    cos: Ptr,
    sin: Ptr,
    position: Ptr,
    absorbed: Ptr,
    x_stride: u64,
    x_batch: u64,
    w_batch: u64,
    y_stride: u64,
    y_batch: u64,
    rows: u32,
    inputs: u32,
    outputs: u32,
    inner: u32,
    splits: u32,
    wide: u32,
    add: u32,
    head: u32,
    nope: u32,
    latent: u32,
    scale: f32,
    unused: u32,
}

impl KernelArgs for DenseArgs {}

impl Dense {
    /// Loads the kernels.
    ///
    /// # Errors
    /// No memory, the compiler's or the driver's.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        Self::with(gpu, &FORMS)
    }

    /// The same with other forms, for benchmarks; ascending by rows.
    ///
    /// # Errors
    /// As [`Dense::new`].
    #[doc(hidden)]
    pub fn with(gpu: &Gpu, forms: &[Form]) -> Result<Self> {
        let kernel = |form: &Form| {
            let shapes = [
                ("TILES", form.tiles as i64),
                ("DEPTH", form.depth as i64),
                ("FRAGMENTS", form.fragments as i64),
                ("WARPS", form.warps as i64),
                ("RESIDENT", form.resident as i64),
            ];
            Ok((*form, gpu.kernel("dense_smxx.cu", "dense", &shapes)?))
        };
        let (sms, most) = (gpu.info().sms as usize, forms.iter().map(|f| f.tiles * 8).max().unwrap_or(0));
        let slots = 8 * sms;
        Ok(Self {
            kernels: forms.iter().map(kernel).collect::<Result<_>>()?,
            partial: gpu.alloc("working memory of products", slots * most * OUTPUTS)?,
            arrived: gpu.zeroed("working memory of products", slots)?,
            slots,
            sms,
            shared: gpu.info().shared as usize,
        })
    }

    /// Whether a product of this form is served: bf16, few rows, rows that begin at multiples of 16 bytes.
    #[must_use]
    pub fn serves(&self, call: &DenseCall) -> bool {
        let eights = [call.x.stride, call.x.batch_stride, call.w.batch_stride];
        call.x.dtype == Dtype::Bf16
            && call.w.dtype == Dtype::Bf16
            && call.w.stride == call.inputs
            && call.inputs.is_multiple_of(STEP)
            && eights.iter().all(|n| n.is_multiple_of(8))
            && call.x.at.0.is_multiple_of(16)
            && self.plan(call).is_some()
    }

    /// The kernel, and the blocks that share the inputs of one tile of outputs: enough to keep every multiprocessor reading,
    /// with some steps for each warp, and so many that the rows' part of the inputs fits into shared memory.
    fn plan(&self, call: &DenseCall) -> Option<(usize, usize)> {
        let at = self.kernels.iter().position(|(form, _)| form.tiles * 8 >= call.rows)?;
        let form = self.kernels[at].0;
        let (tiles, steps) = (call.tiles() * call.batch, call.inputs / STEP);
        // Where the tiles alone nearly fill the device, a split must be worth the second sum.
        let least = if tiles * 5 >= self.sms * 4 { 8 } else { 3 };
        let fill = (self.sms * form.resident.min(2) / tiles).min(steps / (form.parts() * least)).max(1);
        let fits = |splits: usize| form.shared(steps, splits) <= self.shared / form.resident - 1024;
        let splits = (fill..=steps.max(1)).find(|s| fits(*s))?;
        (splits == 1 || tiles * splits <= self.slots).then_some((at, splits))
    }

    /// Queues it. The launch depends on the shapes alone.
    ///
    /// # Errors
    /// A call that is not served, or the driver's.
    pub fn run(&self, gpu: &Gpu, call: &DenseCall) -> Result<()> {
        let Some((_, splits)) = self.plan(call) else { return Err(refused(call)) };
        self.run_split(gpu, call, splits)
    }

    /// The same with a number of splits, for benchmarks.
    ///
    /// # Errors
    /// The driver's.
    #[doc(hidden)]
    pub fn run_split(&self, gpu: &Gpu, call: &DenseCall, splits: usize) -> Result<()> {
        let Some((form, kernel)) = self.plan(call).map(|(at, _)| &self.kernels[at]) else { return Err(refused(call)) };
        let args = DenseArgs {
            x: call.x.at,
            w: call.w.at,
            glu: call.glu.map_or(Ptr::NULL, |g| g.w),
            y: call.y.at,
            z: call.glu.map_or(Ptr::NULL, |g| g.z),
            partial: self.partial.ptr(),
            arrived: self.arrived.ptr(),
            cos: call.queries.map_or(Ptr::NULL, |q| q.cos),
            sin: call.queries.map_or(Ptr::NULL, |q| q.sin),
            position: call.queries.map_or(Ptr::NULL, |q| q.position),
            absorbed: call.queries.map_or(Ptr::NULL, |q| q.absorbed),
            x_stride: call.x.stride as u64,
            x_batch: call.x.batch_stride as u64,
            w_batch: call.w.batch_stride as u64,
            y_stride: call.y.stride as u64,
            y_batch: call.y.batch_stride as u64,
            rows: call.rows as u32,
            inputs: call.inputs as u32,
            outputs: call.outputs as u32,
            inner: call.glu.map_or(0, |g| g.inner as u32),
            splits: splits as u32,
            wide: u32::from(call.y.dtype == Dtype::F32),
            add: u32::from(call.add),
            head: call.queries.map_or(0, |q| (q.nope + q.rope) as u32),
            nope: call.queries.map_or(0, |q| q.nope as u32),
            latent: call.queries.map_or(0, |q| q.latent as u32),
            scale: call.queries.map_or(1.0, |q| q.scale),
            unused: 0,
        };
        let shared = form.shared(call.inputs / STEP, splits) as u32;
        let grid = [call.tiles() as u32, splits as u32, call.batch as u32];
        let launch = Launch { grid, block: 32 * form.warps as u32, shared };
        gpu.launch_early(kernel, launch, &args)
    }
}
