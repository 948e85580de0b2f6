//! Checks of the engine against the faults that public engines had. Each check returns what it found instead of failing,
//! so that the same check can be shown to turn red under its seeded fault.

mod attention;
mod cache;
mod drafters;
mod sampling;
mod verify;

use crate::seeded::{Seeded, with};
use crate::{CpuEngine, CpuPair, DrafterSource, EngineSettings, Model, Scorer};
use std::path::PathBuf;
use std::sync::Arc;
use treeline_core::{Admit, Batch, Caps, Engine, Forest, Law, Request, Sampling, Seq};

/// Targets of every family.
const FAMILIES: [&str; 7] =
    ["deepseek_v3", "deepseek_v3_plain", "kimi_k2", "qwen3", "qwen3_window", "qwen3_moe", "llama"];

/// What a check found.
type Found = Result<(), String>;

/// The check is green, and red under its fault.
#[track_caller]
fn holds(fault: Seeded, check: impl Fn() -> Found) {
    assert_eq!(check(), Ok(()));
    // A fault may also run into a bounds check.
    let red =
        with(fault, || std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check)).map_or(true, |c| c.is_err()));
    assert!(red, "the seeded fault {fault:?} goes unseen");
}

fn equal<T: PartialEq>(got: T, want: T, what: impl Fn() -> String) -> Found {
    if got == want { Ok(()) } else { Err(what()) }
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn model(name: &str) -> Arc<Model> {
    Arc::new(Model::load(&fixture(name)).unwrap())
}

fn dflash_pair() -> CpuPair {
    CpuPair::load(&fixture("kimi_k2"), &DrafterSource::Dflash { dir: fixture("dflash_kimi") }).unwrap()
}

/// A small generator for test inputs.
pub(crate) struct Noise(pub u64);

impl Noise {
    pub fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }

    fn tokens(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(60)).collect()
    }

    /// Parents of a tree; each node hangs under one of the `span` newest rows.
    fn parents(&mut self, rows: usize, span: usize) -> Vec<u32> {
        (0..rows).map(|i| if i == 0 { 0 } else { (i - 1 - self.below(span.min(i) as u32) as usize) as u32 }).collect()
    }
}

/// Path of a node, root first.
fn path(node: usize, parents: &[u32]) -> Vec<usize> {
    let mut path = vec![node];
    while path[path.len() - 1] != 0 {
        path.push(parents[path[path.len() - 1]] as usize);
    }
    path.reverse();
    path
}

fn bits(row: ndarray::ArrayView1<'_, f32>) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// Every node's logits against those of its path decoded alone, token by token.
fn tree_equals_paths(model: &Arc<Model>, past: &[u32], tokens: &[u32], parents: &[u32]) -> Found {
    let mut tree = Scorer::new(model.clone());
    tree.extend(past);
    let got = tree.tree(tokens, parents);
    let mut plain = Scorer::new(model.clone());
    plain.extend(past);
    for node in 0..tokens.len() {
        plain.truncate(past.len());
        let mut last = Vec::new();
        for n in path(node, parents) {
            last = bits(plain.extend(&tokens[n..=n]).row(0));
        }
        equal(bits(got.row(node)), last, || format!("node {node} of {}", tokens.len()))?;
    }
    Ok(())
}

/// Takes a prompt into a slot and returns the running sequence with the given root.
fn admit(engine: &mut CpuEngine, slot: u32, prompt: &[u32], root: Option<u32>, sampling: Sampling) -> Seq {
    let request =
        Request { id: u64::from(slot) + 100, prompt: prompt.to_vec(), max_new: 1000, eos: Vec::new(), sampling };
    loop {
        if let Admit::Done { root: first, start } = engine.admit(slot, &request, &Law::Greedy).unwrap() {
            return Seq {
                slot,
                request: request.id,
                index: slot as usize,
                start,
                root: root.unwrap_or(first),
                left: 1000,
                eos: [].into(),
                sampling,
                round: 0,
            };
        }
    }
}

/// A forest of given trees (tokens and parents, root first).
fn forest(batch: &Batch, trees: &[(Vec<u32>, Vec<u32>)]) -> Forest {
    let mut forest = Forest::default();
    let caps: Vec<Caps> = trees.iter().map(|(t, _)| Caps { nodes: t.len() as u32, depth: t.len() as u32 }).collect();
    forest.reset(batch, &caps);
    for (at, (tokens, parents)) in trees.iter().enumerate() {
        for node in 1..tokens.len() {
            forest.tree_mut(at).push(parents[node], tokens[node], 0, 0.0).unwrap();
        }
    }
    forest
}

fn engine(pair: &CpuPair, slots: u32) -> CpuEngine {
    pair.engine(EngineSettings { slots, context: 200, chunk: 16 }).unwrap()
}
