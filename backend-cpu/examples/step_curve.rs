//! Times whole decode steps of a pair by verified rows and prints the curve that cost-aware policies read:
//!
//!     cargo run --release -p treeline-cpu --example step_curve -- TARGET_DIR DFLASH_DIR [CONCURRENCY]
//!
//! Prompts are pseudo-random tokens, so the number of distinct experts is that of unrelated text. Every figure is the
//! median of the steps of one run; draft, verify, walk and commit are included, prefill is not.

use std::error::Error;
use std::path::PathBuf;
use treeline_core::testing::Shape;
use treeline_core::{Law, Phase, Request, RunSetup, Sampling};
use treeline_cpu::{CpuPair, DrafterSource, EngineSettings};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [target, dflash, rest @ ..] = args.as_slice() else {
        return Err("usage: step_curve TARGET_DIR DFLASH_DIR [CONCURRENCY]".into());
    };
    let concurrency: u32 = rest.first().map_or(Ok(1), |c| c.parse())?;
    let pair = CpuPair::load(target.as_ref(), &DrafterSource::Dflash { dir: PathBuf::from(dflash) })?;
    let vocab = pair.target().config().vocab as u32;
    let prompt = |id: u32| (0..160u32).map(|i| ((i * 7919 + id * 104_729) ^ (i * i * 31)) % vocab).collect();
    let requests: Vec<Request> = (0..concurrency)
        .map(|id| Request {
            id: u64::from(id),
            prompt: prompt(id),
            max_new: 40,
            eos: Vec::new(),
            sampling: Sampling::at(0.7),
        })
        .collect();
    let (mut rows, mut ms) = (Vec::new(), Vec::new());
    let mut table = String::from("rows  step ms  draft  verify  walk  commit  experts\n");
    // Chains up to the drafter's depth, then a bushy shape cut to the budget.
    for nodes in [0u32, 3, 7, 8, 15, 16, 24, 32, 48, 64] {
        let mut engine = pair.engine(EngineSettings { slots: concurrency, context: 512, chunk: 64 })?;
        let parents: Vec<u32> = (0..nodes).map(|i| if i < 7 { i } else { (i - 7) / 2 }).collect();
        let ranks: Vec<u32> = (0..nodes).map(|i| if i < 7 { 0 } else { 1 + i % 2 }).collect();
        let law = Law::SampleMatch { seed: 1 };
        let setup = RunSetup { budget: nodes, concurrency, law: &law, cost: None };
        let mut steps: Vec<([f64; 4], f64, f64)> = Vec::new();
        treeline_core::run(&mut engine, &mut Shape::new(&parents, &ranks), &requests, &setup, &mut |view| {
            if let Some(t) = &view.log.times {
                let parts = [Phase::Draft, Phase::Verify, Phase::Walk, Phase::Commit].map(|p| t.of(p));
                steps.push((parts, t.round(), view.log.experts_mean().unwrap_or(0.0)));
            }
        })?;
        steps.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (parts, step, experts) = steps[steps.len() / 2];
        let [draft, verify, walk, commit] = parts;
        table += &format!(
            "{:4}  {step:7.2}  {draft:5.2}  {verify:6.2}  {walk:4.2}  {commit:6.2}  {experts:7.1}\n",
            nodes + 1
        );
        rows.push(nodes + 1);
        ms.push((step * 100.0).round() / 100.0);
    }
    eprint_table(&table);
    write_curve(&rows, &ms);
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the table is for people")]
fn eprint_table(table: &str) {
    eprint!("{table}");
}

#[expect(clippy::print_stdout, reason = "the curve is the result")]
fn write_curve(rows: &[u32], ms: &[f64]) {
    println!("rows = {rows:?}\nms = {ms:?}");
}
