//! After the verdict: accepted rows move to the end of the cache, and their features to where the drafter looks for them.

use super::features::{Accepted, CudaFeatures, Taps};
use super::state::Field;
use super::verifier::CudaVerifier;
use crate::device::Ptr;
use crate::error::{CudaError, Result as CudaResult};
use crate::ops::gather::GatherKvCall;
use treeline_core::{Batch, Fault, Forest, Step};

impl CudaVerifier {
    /// Queues the KV gather of accepted paths, and that of their features to where the drafter looks for them.
    pub(super) fn gather(&mut self, batch: &Batch, longest: usize, features: &CudaFeatures) -> CudaResult<()> {
        let seqs = batch.len() as u32;
        let waiting = features.taps.as_ref().is_some_and(Taps::waiting);
        if waiting {
            // Rounds without a draft have bare roots, so one row of each fits: the drafter has seen to it.
            if features.taps.as_ref().is_some_and(|taps| !taps.fits(seqs * longest as u32)) {
                let problem = format!("of {seqs} sequences grew by {longest} without a draft: they do not fit");
                return Err(CudaError::Setting { key: "features", problem });
            }
            self.pack_paths(batch.len(), longest);
        }
        self.state.push(&self.gpu)?;
        let (paths, lens) = (self.state.at(Field::Path), self.state.at(Field::PathLen));
        if waiting {
            // No draft took in what the last commit left: behind it, and not from the graph.
            let (rows, tap_paths) = (self.plan.ptrs(), self.state.at(Field::TapPath));
            self.gather_kv(seqs, paths, lens)?;
            let from = Accepted { src: self.work.taps(), begin: rows.seq_begin, path: tap_paths, len: lens };
            return features.taps.iter().try_for_each(|taps| taps.gather(&self.gpu, seqs, from, longest as u32));
        }
        let padded = self.buckets.seqs(seqs).unwrap_or(seqs);
        let mut commits = std::mem::take(&mut self.commits);
        let ran = commits.run_once(&self.gpu, padded, || self.gather_all(padded, paths, lens, features));
        self.clock.skip(commits.take_spent());
        self.commits = commits;
        ran.map(|_| ())
    }

    /// KV and features of `seqs` sequences, to the features' first region.
    pub(super) fn gather_all(&self, seqs: u32, paths: Ptr, lens: Ptr, features: &CudaFeatures) -> CudaResult<()> {
        self.gather_kv(seqs, paths, lens)?;
        let from = Accepted { src: self.work.taps(), begin: self.plan.ptrs().seq_begin, path: paths, len: lens };
        let width = self.state.path as u32;
        features.taps.iter().try_for_each(|taps| taps.gather(&self.gpu, seqs, from, width))
    }

    fn gather_kv(&self, seqs: u32, path: Ptr, path_len: Ptr) -> CudaResult<()> {
        let rows = self.plan.ptrs();
        let call = GatherKvCall {
            bases: self.cache.bases(),
            layers: self.cache.parts() as u32,
            seq_kv: rows.seq_kv,
            seq_start: rows.seq_start,
            path,
            path_len,
            max_path: self.state.path as u32,
        };
        self.gatherer.run(&self.gpu, seqs, &call)
    }

    /// Writes the accepted rows of a sequence into the state block.
    pub(super) fn accept(&mut self, at: usize, path: &[u32]) {
        let width = self.state.path;
        self.state.get(Field::PathLen)[at] = path.len() as u32;
        self.state.get(Field::Path)[at * width..][..path.len()].copy_from_slice(path);
    }

    /// The paths once more, `longest` places a sequence.
    fn pack_paths(&mut self, seqs: usize, longest: usize) {
        let width = self.state.path;
        for at in 0..seqs {
            let path: Vec<u32> = self.state.get(Field::Path)[at * width..][..longest].to_vec();
            self.state.get(Field::TapPath)[at * longest..][..longest].copy_from_slice(&path);
        }
    }

    /// Tells the drafter what was committed: `paths` has slot, root position and accepted rows of each sequence.
    pub(super) fn note(
        batch: &Batch,
        forest: &Forest,
        results: &[Result<Step, Fault>],
        longest: u32,
        features: &CudaFeatures,
    ) {
        let going = |result: &Result<Step, Fault>| result.as_ref().is_ok_and(|step| step.end.is_none());
        if let Some(taps) = &features.taps {
            let rows = |r: &Result<Step, Fault>| r.as_ref().map_or(0, |step| step.path.len() as u32 + 1);
            let paths = batch.iter().zip(results);
            let paths = paths.map(|(seq, r)| (seq.slot, seq.start, if going(r) { rows(r) } else { 0 }));
            taps.note(paths, longest);
        }
        if let Some(tokens) = &features.tokens {
            for (at, (seq, result)) in batch.iter().zip(results).enumerate() {
                let Ok(step) = result else { continue };
                let nodes = std::iter::once(0).chain(step.path.iter().copied());
                let tree = forest.tree(at).tokens();
                tokens.borrow_mut()[seq.slot as usize].extend(nodes.map(|node| tree[node as usize]));
            }
        }
    }
}
