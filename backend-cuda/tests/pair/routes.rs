//! How much of the error in bf16 is the routers': the same rows with the experts that the f32 path chooses, and without.

use crate::subject::{Subject, subjects};
use treeline_cpu::Scorer;
use treeline_cuda::device::{Dtype, Gpu};
use treeline_cuda::model::{Cache, Head, LoadOptions, Part, Shard, Target, Work};
use treeline_cuda::ops::rows::{Bucket, RowPlan, Sight};
use treeline_cuda::testing::relative_error;

/// Rows of a pass: a prompt and its text.
const ROWS: u32 = 192;

/// A target whose passes are whole texts.
struct Reader {
    gpu: Gpu,
    target: Target,
    cache: Cache,
    work: Work,
    plan: RowPlan,
}

impl Reader {
    fn new(subject: &Subject, dtype: Dtype) -> Self {
        let (gpu, bucket) = (subject.gpu.clone(), Bucket { rows: ROWS, seqs: 1 });
        let options = LoadOptions { dtype, shard: Shard::ONE, positions: ROWS as usize };
        let target = Target::load(&gpu, &subject.target_dir(), &options).unwrap_or_else(|e| panic!("{e}"));
        let cache = target.cache(&gpu, ROWS as usize + 1).unwrap();
        let work = target.work(&gpu, bucket, &[]).unwrap();
        let plan = RowPlan::new(&gpu, ROWS as usize, 1, ROWS).unwrap();
        Self { gpu, target, cache, work, plan }
    }

    /// Logits of all rows, and the experts of every layer that has some, \[layers\]\[rows · top_k\].
    fn read(&mut self, tokens: &[u32]) -> (Vec<Vec<f32>>, Vec<Vec<i32>>) {
        let bucket = Bucket { rows: tokens.len() as u32, seqs: 1 };
        self.plan.clear();
        self.plan.add(0, 0, tokens, Sight::Causal).unwrap();
        self.plan.push(&self.gpu, bucket).unwrap();
        let (gpu, work, each) = (&self.gpu, &self.work, tokens.len() * self.target.top_k());
        let mut experts = Vec::new();
        let mut probe = |part: Part, _: usize| {
            if part == Part::Experts {
                experts.push(gpu.read::<i32>(work.ids(), each)?);
            }
            Ok(true)
        };
        let rows = self.plan.ptrs();
        self.target.forward_probed(gpu, bucket, rows, &self.cache, work, Head::All, &mut probe).unwrap();
        let width = self.target.logits_width();
        let all: Vec<f32> = gpu.read(work.logits(), tokens.len() * width).unwrap();
        (all.chunks_exact(width).map(<[f32]>::to_vec).collect(), experts)
    }

    /// The next passes take these experts.
    fn force(&mut self, experts: &[Vec<i32>]) {
        self.work.force(&self.gpu).unwrap();
        let forced = self.work.forced().unwrap();
        for (layer, ids) in experts.iter().enumerate() {
            self.gpu.copy_in(forced.at(layer * forced.len() / experts.len()), ids).unwrap();
        }
    }
}

fn tell(name: &str, what: &str, errors: &mut [f64]) -> (f64, f64) {
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize];
    println!(
        "{name}, {what}: {} rows, relative error {:.1e} / {:.1e} / {:.1e} / {:.1e} (median, 95 %, 99 %, largest)",
        errors.len(),
        at(0.5),
        at(0.95),
        at(0.99),
        at(1.0)
    );
    (at(0.5), at(1.0))
}

/// Whole texts in one pass, in f32: other shapes of the same products than decoding has.
#[test]
fn whole_texts_agree_in_f32() {
    for subject in subjects(Dtype::F32) {
        let mut reader = Reader::new(&subject, Dtype::F32);
        let mut errors = Vec::new();
        for (i, (request, text)) in subject.greedy().iter().zip(subject.greedy_text()).enumerate() {
            let whole = [&request.prompt[..], text].concat();
            let whole = &whole[..whole.len().min(ROWS as usize)];
            let want = Scorer::new(subject.cpu.target().clone()).extend(whole);
            for (row, got) in reader.read(whole).0.iter().enumerate() {
                let error = relative_error(got, &want.row(row).to_vec());
                if error > 1e-3 {
                    println!(
                        "  request {i}, row {row} of {} (prompt {}): {error:.1e}",
                        whole.len(),
                        request.prompt.len()
                    );
                }
                errors.push(error);
            }
        }
        let (median, _) = tell(&subject.name(), "whole texts", &mut errors);
        let parted = errors.iter().filter(|e| **e > 1e-3).count();
        assert!(
            parted <= errors.len() / 1000 && median <= 1e-5,
            "{}: {parted} of {} rows",
            subject.name(),
            errors.len()
        );
    }
}

/// With the f32 path's experts, no row is far from the reference; so the tail of free bf16 is the routers'.
#[test]
fn with_the_same_experts_bf16_has_no_tail() {
    for subject in subjects(Dtype::Bf16) {
        let [mut wide, mut free, mut held] =
            [Dtype::F32, Dtype::Bf16, Dtype::Bf16].map(|dtype| Reader::new(&subject, dtype));
        let (mut own, mut same) = (Vec::new(), Vec::new());
        let texts = subject.greedy_text();
        for (request, text) in subject.greedy().iter().zip(texts) {
            let whole = [&request.prompt[..], text].concat();
            let whole = &whole[..whole.len().min(ROWS as usize)];
            let want = Scorer::new(subject.cpu.target().clone()).extend(whole);
            held.force(&wide.read(whole).1);
            for (reader, errors) in [(&mut free, &mut own), (&mut held, &mut same)] {
                let got = reader.read(whole).0;
                errors.extend(got.iter().enumerate().map(|(i, row)| relative_error(row, &want.row(i).to_vec())));
            }
        }
        let (_, tail) = tell(&subject.name(), "experts as bf16 chooses", &mut own);
        let (median, largest) = tell(&subject.name(), "experts as f32 chooses", &mut same);
        assert!(largest <= subject.either(4e-2, 8e-2), "{}: {largest:e}", subject.name());
        assert!(median <= subject.either(1e-2, 2.5e-2), "{}: {median:e}", subject.name());
        assert!(!subject.real() || tail > largest, "the routers change nothing: {tail:e}");
    }
}
