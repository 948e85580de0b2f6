//! Arguments that cannot work are errors that name them: no panic, no hang, no memory for what a file merely claims.

mod pairs;

use pairs::{CONTEXT, KIMI, QWEN, fixture, requests, settings};
use treeline_core::testing::Shape;
use treeline_core::{Engine, Law, Request, RunSetup, Sampling, run};
use treeline_cuda::CudaError;
use treeline_cuda::device::Dtype;
use treeline_cuda::engine::{CudaPair, CudaSettings, DrafterSource, PairOptions};
use treeline_cuda::ops::rows::{RowPlan, Sight};
use treeline_cuda::testing::gpus;

fn load(gpu: &treeline_cuda::device::Gpu, target: &std::path::Path, drafter: DrafterSource, context: u32) -> String {
    let options = PairOptions { dtype: Dtype::F32, context };
    CudaPair::load(gpu, target, &drafter, &options).map_or_else(|e| e.to_string(), |_| "loaded".to_owned())
}

/// A copy of the block drafter with blocks of another size.
fn blocks_of(size: u32) -> tempfile::TempDir {
    let (from, to) = (fixture("dflash_kimi"), tempfile::tempdir().unwrap());
    std::fs::copy(from.join("model.safetensors"), to.path().join("model.safetensors")).unwrap();
    let text = std::fs::read_to_string(from.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["block_size"] = size.into();
    std::fs::write(to.path().join("config.json"), config.to_string()).unwrap();
    to
}

#[test]
fn pairs_that_cannot_work_are_not_loaded() {
    for gpu in gpus() {
        let (target, dir) = (fixture("kimi_k2"), fixture("dflash_kimi"));
        let dflash = |dir: &std::path::Path| DrafterSource::Dflash { dir: dir.to_owned() };
        // The models were made for 262144 positions, all of which may be used.
        assert_eq!(load(&gpu, &target, dflash(&dir), 262_144), "loaded");
        for context in [0, 262_145, u32::MAX] {
            let says = load(&gpu, &target, dflash(&dir), context);
            assert!(says.starts_with(&format!("`context` is {context}")) && says.contains("262144"), "{says}");
        }
        let largest = blocks_of(288);
        assert_eq!(load(&gpu, &target, dflash(largest.path()), 64), "loaded");
        let says = load(&gpu, &target, dflash(blocks_of(289).path()), 64);
        assert!(says.contains("`block_size` is 289") && says.contains("288"), "{says}");
        let says = load(&gpu, &dir, dflash(&target), 64);
        assert!(says.contains("DFlashDraftModel"), "{says}");
        for depth in [0, 65, u32::MAX] {
            let says = load(&gpu, &target, DrafterSource::Autoregressive { dir: fixture("llama"), depth }, 64);
            assert!(says.starts_with(&format!("`depth` is {depth}")), "{says}");
        }
        let says = load(&gpu, &target.join("nowhere"), DrafterSource::None, 64);
        assert!(says.contains("nowhere"), "{says}");
    }
}

#[test]
fn sizes_that_cannot_work_make_no_engine() {
    for gpu in gpus() {
        let pair = KIMI.on(&gpu, Dtype::F32);
        let good = settings(2);
        let says = |settings: CudaSettings, key: &str| match pair.engine(settings) {
            Err(CudaError::Setting { key: said, .. }) => assert_eq!(said, key, "{settings:?}"),
            other => panic!("{settings:?}: {:?}", other.map(|e| e.info())),
        };
        says(CudaSettings { slots: 0, ..good }, "slots");
        says(CudaSettings { slots: 1_000_000, ..good }, "slots");
        says(CudaSettings { slots: u32::MAX, ..good }, "slots");
        says(CudaSettings { chunk: 0, ..good }, "chunk");
        says(CudaSettings { chunk: u32::MAX, ..good }, "chunk");
        says(CudaSettings { context: CONTEXT + 1, ..good }, "context");
        says(CudaSettings { nodes: 1_000_000_000, ..good }, "nodes");
        says(CudaSettings { rows: 0, ..good }, "rows");
        says(CudaSettings { width: u32::MAX, ..good }, "width");
        says(CudaSettings::new(u32::MAX, u32::MAX, u32::MAX), "slots");
        // The smallest and largest that work.
        for settings in
            [CudaSettings { chunk: 1, width: 1, ..CudaSettings::new(1, 2, 0) }, CudaSettings::new(2, CONTEXT, 256)]
        {
            assert_eq!(pair.engine(settings).unwrap().free(), settings.slots);
        }
    }
}

/// A request that cannot be served ends alone, with the reason; its slot is free again and the others are served.
#[test]
fn requests_that_cannot_be_served_end_alone() {
    for gpu in gpus() {
        let pair = QWEN.on(&gpu, Dtype::F32);
        let mut engine = pair.engine(settings(2)).unwrap();
        let mut all = requests(2, 6, Sampling::GREEDY);
        let with = |id: u64, prompt: Vec<u32>| Request { id, prompt, ..all[0].clone() };
        let long = CONTEXT as usize;
        let bad = [
            with(10, Vec::new()),
            with(11, vec![u32::MAX]),
            with(12, [vec![1; 20], vec![64]].concat()),
            with(13, vec![1; long + 1]),
        ];
        all.extend(bad);
        for budget in [0, 8] {
            let setup = RunSetup { budget, concurrency: 2, law: &Law::Greedy, cost: None };
            let got = run(&mut engine, &mut Shape::chain(budget), &all, &setup, &mut |_| {}).unwrap();
            for response in &got {
                assert_eq!(response.end.is_err(), response.request >= 10, "{:?}", response.end);
            }
            assert_eq!((got.len(), engine.free()), (6, 2));
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    for gpu in gpus() {
        let mut plan = RowPlan::new(&gpu, 300, 2, 0).unwrap();
        let says = |plan: &mut RowPlan, kv, start, tokens: &[u32], sight: Sight<'_>| {
            let before = plan.len();
            let e = plan.add(kv, start, tokens, sight).unwrap_err().to_string();
            assert!(e.starts_with("`rows` ") && plan.len() == before, "{e}");
            e
        };
        assert!(says(&mut plan, 0, 0, &[1; 289], Sight::Causal).contains("289"));
        assert!(says(&mut plan, 0, 0, &[1; 3], Sight::Tree(&[0, 0])).contains("parents of 2"));
        assert!(says(&mut plan, 0, 0, &[1; 3], Sight::Tree(&[])).contains("parents of 0"));
        for (kv, start) in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX), (1 << 31, 1 << 31)] {
            assert!(says(&mut plan, kv, start, &[1; 3], Sight::All).contains("32 bits"));
        }
        // Parents that are not before their children end the walk up, and nothing else.
        plan.add(0, 0, &[1; 3], Sight::Tree(&[9, 9, 9])).unwrap();
        plan.add(0, 0, &[1; 288], Sight::Causal).unwrap();
        assert!(says(&mut plan, 0, 0, &[1], Sight::All).contains("sequence 2"));
        assert_eq!(plan.len(), 291);
    }
}

/// Sizes beyond the numbers of 64 bits are memory that is not there, not a small piece of it.
#[test]
fn memory_beyond_all_numbers_is_an_error() {
    for gpu in gpus() {
        for len in [usize::MAX, usize::MAX / 8 + 2, 1 << 60] {
            for e in [gpu.alloc::<u64>("much", len).err(), gpu.zeroed::<u64>("much", len).err()] {
                assert!(matches!(e, Some(CudaError::Memory { .. })), "{len}: {e:?}");
            }
            assert!(gpu.pinned::<u64>(len).is_err(), "{len}");
        }
    }
}
