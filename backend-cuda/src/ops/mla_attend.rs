//! Latent attention (MLA in its absorbed form) of the rows of a pass: past and draft tree in one softmax.
//!
//! Rows × heads of one sequence are folded into tiles, so that a key is read from memory once a tile; all work of a pass is cut
//! into equal shares of the blocks whatever the batch looks like (`mla_split.cuh`), and a second kernel joins the tiles that
//! several blocks shared. The launch depends on the [`Bucket`] alone.

use super::rows::{Bucket, RowsPtr};
use crate::device::{Arch, Buffer, Define, Dtype, Gpu, Kernel, KernelArgs, Launch, Ptr};
use crate::error::{CudaError, Result};
use bytemuck::{Pod, Zeroable};

/// How the attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MlaForm {
    /// One thread a key, f32: any shape, both types.
    Any,
    /// `mma.sync` in bf16: every architecture; the latent 128, 256, 384 or 512, its sum with the rotary part of 8.
    Portable,
    /// The same with tiles of 64 rows by `wgmma`: Hopper, 512 + 64.
    Hopper,
}

impl MlaForm {
    /// The fastest form for this shape on this device.
    #[must_use]
    pub fn best(gpu: &Gpu, dtype: Dtype, kv_lora: usize, rope: usize) -> Self {
        Self::tiles(gpu, dtype, kv_lora, rope).pop().unwrap_or(Self::Any)
    }

    /// The tile forms that serve this shape on this device, the fastest last.
    #[must_use]
    pub fn tiles(gpu: &Gpu, dtype: Dtype, kv_lora: usize, rope: usize) -> Vec<Self> {
        let shape = dtype == Dtype::Bf16
            && (128..=512).contains(&kv_lora)
            && kv_lora.is_multiple_of(128)
            && rope.is_multiple_of(8)
            && rope > 0;
        let fits = shared_bytes(kv_lora + rope, 64) <= gpu.info().shared;
        let hopper = matches!(gpu.info().arch, Arch::Sm90a | Arch::Host) && (kv_lora, rope) == (512, 64);
        match (shape && fits, hopper) {
            (false, _) => Vec::new(),
            (true, false) => vec![Self::Portable],
            (true, true) => vec![Self::Portable, Self::Hopper],
        }
    }
}

/// out\[r, h\] = Σ_k softmax_k(q\[r, h\] · key_k) · value_k over the keys that row r sees; a key is a row of the cache, its
/// value the first `kv_lora` numbers of the same row.
#[derive(Debug)]
pub struct MlaAttend {
    form: Form,
    heads: usize,
    kv_lora: usize,
}

#[derive(Debug)]
enum Form {
    Any(Kernel),
    Tiles(Tiles),
}

/// The tile forms: a kernel for each tile height that passes can need.
#[derive(Debug)]
struct Tiles {
    kernels: Vec<TileKernel>,
    part: Buffer<f32>,
    norm: Buffer<f32>,
    blocks: u32,
    sms: u32,
}

#[derive(Debug)]
struct TileKernel {
    pairs: usize,
    attend: Kernel,
    merge: Kernel,
    shared: u32,
}

/// Operands of one [`MlaAttend::run`]. Padded rows of `out` become zero.
#[derive(Debug, Clone, Copy)]
pub struct MlaCall {
    /// Rows of the pass.
    pub rows: RowsPtr,
    /// Queries, act \[rows, heads, kv_lora + rope\], already scaled.
    pub q: Ptr,
    /// Cache of the layer, act \[cache rows, kv_lora + rope\]; the rows of this pass are in it.
    pub cache: Ptr,
    /// Output, act \[rows, heads, kv_lora\].
    pub out: Ptr,
    /// A row sees keys at positions above its own minus this; 0 = all.
    pub window: u32,
}

/// The steps of a tile form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MlaSteps {
    /// The attention itself.
    pub attend: bool,
    /// Joining the tiles that several blocks shared.
    pub join: bool,
    /// Kernels start beside the one before them.
    pub early: bool,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct AnyArgs {
    rows: RowsPtr,
    q: Ptr,
    cache: Ptr,
    out: Ptr,
    window: u32,
    unused: u32,
}

impl KernelArgs for AnyArgs {}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TileArgs {
    rows: RowsPtr,
    q: Ptr,
    cache: Ptr,
    out: Ptr,
    part: Ptr,
    part_norm: Ptr,
    seqs: u32,
    window: u32,
    blocks: u32,
    lanes: u32,
}

impl KernelArgs for TileArgs {}

/// Shared memory of the portable form: queries, two chunks of 64 keys, and what warps tell each other.
fn shared_bytes(dim: usize, tile: usize) -> u32 {
    let row = dim.div_ceil(64) * 128;
    let exchange = if tile == 64 { 8192 } else { 0 };
    (row * (tile + 2 * 64) + (128 + tile) * 4 + exchange) as u32
}

/// Shared memory of the Hopper form: alignment, queries, two chunks, barriers, what warpgroups tell each other.
const HOPPER_SHARED: u32 = 1024 + 3 * 9 * 8192 + 32 + 1024;

impl MlaAttend {
    /// For passes up to `max_bucket` over at most `max_context` keys a sequence, in the fastest form.
    ///
    /// # Errors
    /// A shape of zero, the compiler's or the driver's; [`CudaError::Memory`].
    pub fn new(
        gpu: &Gpu,
        dtype: Dtype,
        heads: usize,
        kv_lora: usize,
        rope: usize,
        max_bucket: Bucket,
        max_context: usize,
    ) -> Result<Self> {
        let form = MlaForm::best(gpu, dtype, kv_lora, rope);
        Self::with_form(gpu, form, dtype, (heads, kv_lora, rope), max_bucket, max_context, gpu.info().sms)
    }

    /// As [`MlaAttend::new`] in a given form, `shape` being heads, kv_lora and rope, with this many blocks.
    ///
    /// # Errors
    /// As [`MlaAttend::new`]; a form that does not serve the shape.
    pub fn with_form(
        gpu: &Gpu,
        form: MlaForm,
        dtype: Dtype,
        shape: (usize, usize, usize),
        max_bucket: Bucket,
        max_context: usize,
        blocks: u32,
    ) -> Result<Self> {
        let (heads, kv_lora, rope) = shape;
        let fits = form == MlaForm::Any || MlaForm::tiles(gpu, dtype, kv_lora, rope).contains(&form);
        let units = u64::from(max_bucket.rows) * heads as u64 / 8 * (max_context as u64 / 64 + 1);
        if heads * kv_lora * rope == 0 || max_bucket.rows == 0 || max_bucket.seqs == 0 || max_context == 0 || !fits {
            let why =
                format!("latent attention of {heads} heads of {kv_lora} + {rope} has no {form:?} form in {dtype:?}");
            return Err(CudaError::Model(why));
        }
        if units > u64::from(u32::MAX) {
            let problem = format!("of {} over {max_context} keys are too many for one pass", max_bucket.rows);
            return Err(CudaError::Setting { key: "rows", problem });
        }
        let mut shapes = vec![("HEADS", heads as i64), ("KV_LORA", kv_lora as i64), ("ROPE", rope as i64)];
        if dtype == Dtype::Bf16 {
            shapes.push(("ACT_BF16", 1));
        }
        let form = match form {
            MlaForm::Any => Form::Any(gpu.kernel("mla_attend_any.cu", "mla_attend_any", &shapes)?),
            _ => Form::Tiles(Tiles::new(gpu, form, shape, &shapes, max_bucket.rows as usize, blocks.max(1))?),
        };
        Ok(Self { form, heads, kv_lora })
    }

    /// Queues it.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&self, gpu: &Gpu, bucket: Bucket, call: &MlaCall) -> Result<()> {
        self.run_steps(gpu, bucket, call, MlaSteps { attend: true, join: true, early: true })
    }

    /// Queues some of the steps: for a bench that asks where the time goes.
    ///
    /// # Errors
    /// The driver's.
    pub fn run_steps(&self, gpu: &Gpu, bucket: Bucket, call: &MlaCall, steps: MlaSteps) -> Result<()> {
        let MlaCall { rows, q, cache, out, window } = *call;
        match &self.form {
            Form::Any(kernel) => {
                let launch = Launch { grid: [self.heads as u32, bucket.rows, 1], block: 64, shared: 0 };
                gpu.launch_early(kernel, launch, &AnyArgs { rows, q, cache, out, window, unused: 0 })
            }
            Form::Tiles(tiles) => tiles.run(gpu, (self.heads, self.kv_lora), bucket, call, steps),
        }
    }
}

impl Tiles {
    fn new(
        gpu: &Gpu,
        form: MlaForm,
        shape: (usize, usize, usize),
        shapes: &[Define],
        rows: usize,
        blocks: u32,
    ) -> Result<Self> {
        let (heads, kv_lora, rope) = shape;
        let mut kernels = Vec::new();
        let tiles: &[usize] = if form == MlaForm::Hopper { &[64] } else { &[16, 32, 64] };
        for &pairs in tiles {
            let mut defines = shapes.to_vec();
            defines.push(("TILE", pairs as i64));
            // Blocks that read the same keys at the same time pay where memory is waited for.
            defines.push(("EVEN", i64::from(form == MlaForm::Hopper)));
            let (attend, shared) = if form == MlaForm::Hopper {
                (gpu.kernel("mla_attend_sm90.cu", "mla_attend_sm90", &defines)?, HOPPER_SHARED)
            } else {
                (gpu.kernel("mla_attend_smxx.cu", "mla_attend_smxx", &defines)?, shared_bytes(kv_lora + rope, pairs))
            };
            defines.push(("PARTS", i64::from(blocks)));
            let merge = gpu.kernel("mla_merge.cu", "mla_merge", &defines)?;
            kernels.push(TileKernel { pairs, attend, merge, shared });
            if rows * heads <= pairs {
                break;
            }
        }
        let pairs = 2 * blocks as usize * kernels.last().map_or(0, |k| k.pairs);
        let part = gpu.alloc("partial sums of latent attention", pairs * kv_lora)?;
        let norm = gpu.alloc("partial norms of latent attention", pairs * 2)?;
        Ok(Self { kernels, part, norm, blocks, sms: gpu.info().sms })
    }

    fn run(&self, gpu: &Gpu, shape: (usize, usize), bucket: Bucket, call: &MlaCall, steps: MlaSteps) -> Result<()> {
        let (heads, kv_lora) = shape;
        // The tile holds an average sequence of the bucket if it can.
        let pairs = (bucket.rows.div_ceil(bucket.seqs.max(1)) as usize * heads).max(1);
        let fits = self.kernels.iter().find(|k| pairs <= k.pairs).or(self.kernels.last());
        let Some(kernel) = fits else { return Ok(()) };
        // Few (row, head) pairs: several blocks share the columns of one, and more threads of a block its parts.
        let pairs = bucket.rows as usize * heads;
        let mut lanes = 1 << (kv_lora / 4).trailing_zeros().min(7);
        while lanes > 8 && pairs * (kv_lora / 4 / lanes) < 2 * self.sms as usize {
            lanes /= 2;
        }
        let args = TileArgs {
            rows: call.rows,
            q: call.q,
            cache: call.cache,
            out: call.out,
            part: self.part.ptr(),
            part_norm: self.norm.ptr(),
            seqs: bucket.seqs,
            window: call.window,
            blocks: self.blocks,
            lanes: lanes as u32,
        };
        let launch = Launch { grid: [self.blocks, 1, 1], block: 256, shared: kernel.shared };
        let queue = |kernel: &Kernel, launch| {
            if steps.early { gpu.launch_early(kernel, launch, &args) } else { gpu.launch(kernel, launch, &args) }
        };
        if steps.attend {
            queue(&kernel.attend, launch)?;
        }
        if !steps.join {
            return Ok(());
        }
        let launch = Launch { grid: [pairs as u32, (kv_lora / 4 / lanes) as u32, 1], block: 256, shared: 0 };
        queue(&kernel.merge, launch)
    }
}
