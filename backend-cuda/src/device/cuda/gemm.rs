//! Which cuBLASLt algorithm serves which product.
//!
//! The library's own ranking is off by tens of per cent where rows are few. So the first time that a shape comes up outside a
//! capture, its first candidates are timed, each with the weights not in the cache, and the fastest is kept for good: a shape
//! always runs the same algorithm, eager or in a graph, so equal inputs give equal bits. What was found is kept on disk.

use super::choices::Choices;
use crate::device::{Dtype, Gemm, Matrix};
use crate::error::{CudaError, Result};
use crate::ffi::blas::{Algorithm, Handle, Problem, Shape, Type};
use crate::ffi::stream::Stream;
use std::collections::HashMap;
use std::sync::Arc;

/// What the library recommends for Hopper; enough elsewhere.
const WORKSPACE: usize = 32 << 20;

/// Candidates that are timed.
const CANDIDATES: usize = 8;

/// Timed runs of each, and of those that come into the second round.
const QUICK: usize = 5;
const CAREFUL: usize = 15;

/// A challenger's time over the first's.
const CLEAR: f32 = 0.95;

/// More than any second-level cache holds.
const FLUSH: usize = 160 << 20;

/// What an algorithm depends on: all of a product but its addresses, of which only the alignment matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 4],
    strides: [usize; 6],
    types: [Dtype; 3],
    alignments: [u32; 3],
    add: bool,
}

impl Key {
    /// The shape as the file of choices names it.
    fn text(&self) -> String {
        let Self { sizes, strides, types, alignments, add } = self;
        format!("{sizes:?} {strides:?} {types:?} {alignments:?} {add}")
    }
}

#[derive(Debug)]
struct Choice {
    problem: Problem,
    algorithm: Algorithm,
}

/// The products of one GPU. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Blas {
    choices: HashMap<Key, Choice>,
    known: Choices,
    handle: Handle,
    workspace: u64,
    tune: bool,
    stream: Arc<Stream>,
}

impl Blas {
    /// Opens the library and takes its workspace. `TREELINE_GEMM=first` keeps the library's own ranking.
    pub fn new(stream: Arc<Stream>, gpu: &str) -> Result<Self> {
        stream.context.enter()?;
        let handle = Handle::new()?;
        let workspace = stream.context.alloc("the workspace of matrix products", WORKSPACE)?;
        let tune = std::env::var_os("TREELINE_GEMM").is_none_or(|v| v != "first");
        let known = Choices::read(gpu, Handle::version());
        Ok(Self { choices: HashMap::new(), known, handle, workspace, tune, stream })
    }

    /// Queues a product.
    pub fn run(&mut self, gemm: &Gemm, capturing: bool) -> Result<()> {
        if gemm.rows == 0 || gemm.outputs == 0 || gemm.batch == 0 {
            return Ok(());
        }
        let key = key(gemm)?;
        self.stream.context.enter()?;
        if !self.choices.contains_key(&key) {
            let choice = self.choose(gemm, &key, capturing)?;
            self.choices.insert(key, choice);
        }
        let Some(choice) = self.choices.get(&key) else { return Ok(()) };
        let at = [gemm.w.at.0, gemm.x.at.0, gemm.y.at.0];
        let workspace = (self.workspace, WORKSPACE);
        choice.problem.run(&self.handle, &choice.algorithm, at, workspace, self.stream.raw())
    }

    fn choose(&mut self, gemm: &Gemm, key: &Key, capturing: bool) -> Result<Choice> {
        // Row-major y = x·wᵀ is column-major yᵀ = w·xᵀ: the weight is the first factor, transposed as it lies.
        let shape = |m: &Matrix, columns: usize, rows: usize, i: usize| {
            let dtype = if m.dtype == Dtype::F32 { Type::F32 } else { Type::Bf16 };
            Shape { dtype, rows, columns, stride: m.stride, batch_stride: m.batch_stride, alignment: key.alignments[i] }
        };
        let w = shape(&gemm.w, gemm.outputs, gemm.inputs, 0);
        let x = shape(&gemm.x, gemm.rows, gemm.inputs, 1);
        let y = shape(&gemm.y, gemm.rows, gemm.outputs, 2);
        let pedantic = gemm.x.dtype == Dtype::F32;
        let problem = Problem::new(w, x, y, gemm.batch, gemm.add, pedantic)?;
        let text = key.text();
        let known = self.known.get(&text).filter(|a| self.tune && problem.serves(&self.handle, a, WORKSPACE));
        if let Some(algorithm) = known {
            return Ok(Choice { problem, algorithm });
        }
        let found = problem.algorithms(&self.handle, WORKSPACE, CANDIDATES)?;
        let Some(first) = found.first() else {
            let why = format!("no algorithm serves {gemm:?}");
            return Err(CudaError::Call { call: "choosing an algorithm of cuBLASLt".into(), why });
        };
        let mut algorithm = *first;
        if self.tune && !capturing {
            // No memory for the trial is no reason to fail.
            if let Ok(trial) = Trial::new(self, gemm)
                && let Some(fastest) = trial.fastest(&problem, &found)?
            {
                algorithm = fastest;
            }
            self.known.put(text, &algorithm);
        }
        Ok(Choice { problem, algorithm })
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let _ = self.stream.wait("dropping the workspace of matrix products");
        self.stream.context.free(self.workspace);
    }
}

fn key(gemm: &Gemm) -> Result<Key> {
    let Gemm { rows, outputs, inputs, batch, x, w, y, add } = *gemm;
    let fits = x.dtype == w.dtype && (y.dtype == x.dtype || y.dtype == Dtype::F32);
    let wide = x.stride >= inputs && w.stride >= inputs && y.stride >= outputs;
    if !fits || !wide || inputs == 0 {
        let why = format!("types or strides do not fit: {gemm:?}");
        return Err(CudaError::Call { call: "matrix product".into(), why });
    }
    let batched = |m: Matrix| if batch > 1 { m.batch_stride } else { 0 };
    let alignment = |m: Matrix| {
        let bits = m.at.0 | (batched(m) * m.dtype.bytes()) as u64 | 256;
        1u32 << bits.trailing_zeros()
    };
    Ok(Key {
        sizes: [rows, outputs, inputs, batch],
        strides: [x.stride, w.stride, y.stride, batched(x), batched(w), batched(y)],
        types: [x.dtype, w.dtype, y.dtype],
        alignments: [alignment(w), alignment(x), alignment(y)],
        add,
    })
}

/// Memory to time candidates in: a copy of the output, and something to sweep the cache with.
struct Trial<'a> {
    blas: &'a Blas,
    at: [u64; 3],
    scratch: [u64; 2],
}

impl<'a> Trial<'a> {
    fn new(blas: &'a Blas, gemm: &Gemm) -> Result<Self> {
        let elements = gemm.y.stride * gemm.rows + gemm.y.batch_stride * (gemm.batch - 1);
        let context = &blas.stream.context;
        let y = context.alloc("a trial of matrix products", elements * gemm.y.dtype.bytes())?;
        let mut trial = Self { blas, at: [gemm.w.at.0, gemm.x.at.0, y], scratch: [y, 0] };
        trial.scratch[1] = context.alloc("a trial of matrix products", FLUSH)?;
        blas.stream.fill(y, 0, elements * gemm.y.dtype.bytes())?;
        Ok(trial)
    }

    /// The fastest candidate; `None` when none runs. Two of the challengers come into a second round with the library's own
    /// choice, which they must beat clearly: what clocks cannot tell apart is not worth a different sum in each process.
    fn fastest(&self, problem: &Problem, candidates: &[Algorithm]) -> Result<Option<Algorithm>> {
        let mut ranked: Vec<(f32, usize)> = Vec::new();
        for (i, candidate) in candidates.iter().enumerate() {
            // The first run loads the code.
            if self.run(problem, candidate).is_ok() {
                ranked.push((self.median(problem, &[candidate], QUICK)?[0], i));
            }
        }
        let Some(&(_, first)) = ranked.first() else { return Ok(None) };
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let finals: Vec<usize> =
            std::iter::once(first).chain(ranked.iter().map(|r| r.1).filter(|i| *i != first).take(2)).collect();
        let list: Vec<&Algorithm> = finals.iter().map(|i| &candidates[*i]).collect();
        let times = self.median(problem, &list, CAREFUL)?;
        let best =
            (1..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).filter(|b| times[*b] < times[0] * CLEAR);
        Ok(Some(*list[best.unwrap_or(0)]))
    }

    fn run(&self, problem: &Problem, algorithm: &Algorithm) -> Result<()> {
        let workspace = (self.blas.workspace, WORKSPACE);
        problem.run(&self.blas.handle, algorithm, self.at, workspace, self.blas.stream.raw())
    }

    /// Median milliseconds of each algorithm, in turns, with the weights swept out of the cache.
    fn median(&self, problem: &Problem, algorithms: &[&Algorithm], repeats: usize) -> Result<Vec<f32>> {
        let stream = &self.blas.stream;
        let (start, end) = (stream.event()?, stream.event()?);
        let mut times = vec![Vec::new(); algorithms.len()];
        for _ in 0..repeats {
            for (times, algorithm) in times.iter_mut().zip(algorithms) {
                stream.fill(self.scratch[1], 0, FLUSH)?;
                start.record(false)?;
                self.run(problem, algorithm)?;
                end.record(false)?;
                end.wait("a trial of matrix products")?;
                times.push(start.elapsed_ms(&end)?);
            }
        }
        let middle = |mut times: Vec<f32>| {
            times.sort_by(f32::total_cmp);
            times[times.len() / 2]
        };
        Ok(times.into_iter().map(middle).collect())
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        let _ = self.blas.stream.wait("a trial of matrix products");
        self.scratch.iter().filter(|at| **at != 0).for_each(|at| self.blas.stream.context.free(*at));
    }
}
