//! What goes into the shipped slice, and how rows of the package become rows of it.
//!
//! Left out on purpose: what [`treeline_sim::optable::EXCLUDED`] names, formats that are not modelled (NVFP4, FP8 weights, expert parallel),
//! engine versions that a newer one replaces, and shapes of other models.

use super::ImportError;
use super::package::Package;
use super::sheet::{Cell, Sheet};
use super::table::Table;

/// A machine: as the tables name it, as the package names its folder.
const SYSTEMS: [(&str, &str); 3] = [("b200", "b200_sxm"), ("b300", "b300_sxm"), ("h200", "h200_sxm")];
/// Engines whose tables are taken in general.
const ENGINES: [&str; 3] = ["sglang/0.5.14", "trtllm/1.3.0rc20", "vllm/0.24.0"];
/// The two that serve Kimi's INT4 and whose products and attention are taken.
const SERVING: [&str; 2] = ["sglang/0.5.14", "vllm/0.24.0"];
/// Heads of one GPU: Kimi's 64 at 1, 2, 4 and 8 ranks.
const MLA_HEADS: [i64; 4] = [8, 16, 32, 64];
/// Query and key-value heads of one GPU: Qwen3-8B and 30B-A3B and the drafters at the ranks that divide them.
const GQA_HEADS: [(i64, i64); 8] = [(4, 1), (8, 1), (8, 2), (16, 2), (16, 4), (32, 4), (32, 8), (64, 8)];
/// Rows at which products are kept: powers of two, what lies between them, and one more than a tile where the package has it.
const GEMM_ROWS: [i64; 37] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 17, 32, 33, 48, 64, 65, 80, 96, 97, 128, 129, 160, 192, 193, 224, 256, 257, 512,
    768, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768,
];
/// Messages above 64 MiB never occur in a step.
const LARGEST_MESSAGE: i64 = 1 << 26;

/// One file of the package with where it comes from.
struct Source {
    system: &'static str,
    engine: &'static str,
    version: &'static str,
    table: Table,
}

impl Source {
    fn open(
        package: &mut Package,
        system: (&'static str, &str),
        family: &str,
        engine: &'static str,
        name: &str,
    ) -> Result<Self, ImportError> {
        let file = format!("{}/{family}/{engine}/{name}.parquet", system.1);
        let table = Table::open(&file, package.read(&file)?)?;
        let (engine, version) = engine.split_once('/').unwrap_or((engine, ""));
        Ok(Self { system: system.0, engine, version, table })
    }

    /// The first four cells of a key.
    fn origin(&self, kernel: &str) -> Vec<Cell> {
        vec![self.system.into(), self.engine.into(), self.version.into(), kernel.into()]
    }
}

/// The texts of [`treeline_sim::optable::FILES`], in that order.
///
/// # Errors
/// [`ImportError`] of a file of the package that is missing or not what it should be.
pub fn slice(package: &mut Package) -> Result<[String; 7], ImportError> {
    Ok([
        moe(package)?,
        collectives(package)?,
        mla(package, "generation_mla_perf", &["sglang/0.5.14", "trtllm/1.3.0rc20"])?,
        mla(package, "mla_generation_module_perf", &["trtllm/1.3.0rc20", "vllm/0.24.0"])?,
        mla_bmm(package)?,
        gemm(package)?,
        attention(package)?,
    ])
}

fn moe(package: &mut Package) -> Result<String, ImportError> {
    let mut sheet = Sheet::default();
    let older = [(("h200", "h200_sxm"), "sglang/0.5.10")];
    let current = SYSTEMS.iter().flat_map(|&s| ENGINES.map(|e| (s, e)));
    for (system, engine) in current.chain(older) {
        let source = Source::open(package, system, "moe", engine, "moe_perf")?;
        let t = &source.table;
        let (versions, kernels, quants, routings) =
            (t.texts("version")?, t.texts("kernel_source")?, t.texts("moe_dtype")?, t.texts("distribution")?);
        let (tokens, hidden, inter, top_k) =
            (t.numbers("num_tokens")?, t.numbers("hidden_size")?, t.numbers("inter_size")?, t.numbers("topk")?);
        let (experts, tp, ep) = (t.numbers("num_experts")?, t.numbers("moe_tp_size")?, t.numbers("moe_ep_size")?);
        let ms = t.floats("latency")?;
        for i in 0..t.rows() {
            let shape = (experts[i], top_k[i], hidden[i], inter[i]);
            let kimi = shape == (384, 8, 7168, 2048) && quants.get(i) == "int4_wo" && tp[i] <= 16;
            let qwen = shape == (128, 8, 2048, 768) && quants.get(i) == "bfloat16" && tp[i] <= 8;
            // A file also holds rows that a preview version of the engine measured.
            if ep[i] == 1 && versions.get(i) == source.version && (kimi || qwen) {
                let mut key = source.origin(kernels.get(i));
                key.push(quants.get(i).into());
                key.extend([experts[i], top_k[i], hidden[i], inter[i], tp[i]].map(Cell::from));
                key.push(routings.get(i).into());
                sheet.add(t, key, tokens[i], ms[i])?;
            }
        }
    }
    Ok(sheet.text(&[
        "system",
        "engine",
        "version",
        "kernel",
        "quant",
        "experts",
        "top_k",
        "hidden",
        "intermediate",
        "tp",
        "routing",
    ]))
}

fn collectives(package: &mut Package) -> Result<String, ImportError> {
    let mut sheet = Sheet::default();
    let engines = ["sglang/0.5.9", "sglang/0.5.10", "sglang/0.5.14", "trtllm/1.3.0rc20", "vllm/0.19.0", "vllm/0.24.0"];
    let older = [(("h200", "h200_sxm"), "vllm/0.14.0")];
    for (system, engine) in SYSTEMS.iter().flat_map(|&s| engines.map(|e| (s, e))).chain(older) {
        let source = Source::open(package, system, "comm", engine, "custom_allreduce_perf")?;
        let t = &source.table;
        let (kernels, ranks, elements) =
            (t.texts("kernel_source")?, t.numbers("num_gpus")?, t.numbers("message_size")?);
        let ms = t.floats("latency")?;
        for i in 0..t.rows() {
            let kernel = kernels.get(i);
            let launch =
                ["graph", "eager"].into_iter().find(|l| kernel.ends_with(&format!("_{l}"))).unwrap_or("unstated");
            message(&mut sheet, &source, ("all_reduce", launch, kernel), ranks[i], elements[i], ms[i])?;
        }
    }
    for system in SYSTEMS {
        let source = Source::open(package, system, "comm", "nccl/2.29.2", "nccl_perf")?;
        let t = &source.table;
        let (ops, kernels, dtypes) = (t.texts("op_name")?, t.texts("kernel_source")?, t.texts("nccl_dtype")?);
        let (ranks, elements, ms) = (t.numbers("num_gpus")?, t.numbers("message_size")?, t.floats("latency")?);
        for i in 0..t.rows() {
            if ["all_reduce", "all_gather"].contains(&ops.get(i))
                && dtypes.get(i) == "half"
                && [2, 4, 8].contains(&ranks[i])
            {
                message(&mut sheet, &source, (ops.get(i), "unstated", kernels.get(i)), ranks[i], elements[i], ms[i])?;
            }
        }
    }
    let sheet = sheet.extend_keys(super::switches::cell);
    Ok(sheet.text(&["system", "engine", "version", "kernel", "op", "mode", "ranks", "switches"]))
}

/// The package counts a message in elements of two bytes.
fn message(
    sheet: &mut Sheet,
    source: &Source,
    what: (&str, &str, &str),
    ranks: i64,
    elements: i64,
    ms: f64,
) -> Result<(), ImportError> {
    let bytes = elements.saturating_mul(2);
    if bytes > LARGEST_MESSAGE {
        return Ok(());
    }
    let (op, launch, kernel) = what;
    let mut key = source.origin(kernel);
    key.extend([op.into(), launch.into(), Cell::from(ranks)]);
    sheet.add(&source.table, key, bytes, ms)
}

fn mla(package: &mut Package, name: &str, engines: &[&'static str]) -> Result<String, ImportError> {
    let module = name.contains("module");
    let mut sheet = Sheet::default();
    for (system, engine) in SYSTEMS.iter().flat_map(|&s| engines.iter().map(move |&e| (s, e))) {
        let source = Source::open(package, system, "mla", engine, name)?;
        let t = &source.table;
        let (kernels, kv) = (t.texts("kernel_source")?, t.texts("kv_cache_dtype")?);
        let gemm = if module { Some(t.texts("gemm_type")?) } else { None };
        let (heads, batch, step, ms) =
            (t.numbers("num_heads")?, t.numbers("batch_size")?, t.numbers("step")?, t.floats("latency")?);
        for i in 0..t.rows() {
            // Kimi's attention weights are bf16, so only such projections are of use.
            if MLA_HEADS.contains(&heads[i]) && gemm.as_ref().is_none_or(|g| g.get(i) == "bfloat16") {
                let mut key = source.origin(kernels.get(i));
                key.extend([kv.get(i).into(), Cell::from(heads[i]), Cell::from(batch[i])]);
                // A step is the tokens before the new one; module tables count it in.
                sheet.add(t, key, step[i] + i64::from(!module), ms[i])?;
            }
        }
    }
    Ok(sheet.text(&["system", "engine", "version", "kernel", "kv", "heads", "batch"]))
}

fn mla_bmm(package: &mut Package) -> Result<String, ImportError> {
    let mut sheet = Sheet::default();
    for (system, engine) in SYSTEMS.iter().flat_map(|&s| ENGINES.map(|e| (s, e))) {
        let source = Source::open(package, system, "mla_bmm", engine, "mla_bmm_perf")?;
        let t = &source.table;
        let (ops, kernels, dtypes) = (t.texts("op_name")?, t.texts("kernel_source")?, t.texts("bmm_dtype")?);
        let (tokens, heads, ms) = (t.numbers("num_tokens")?, t.numbers("num_heads")?, t.floats("latency")?);
        for i in 0..t.rows() {
            if MLA_HEADS.contains(&heads[i]) {
                let side = ops
                    .get(i)
                    .strip_prefix("mla_gen_")
                    .ok_or_else(|| t.fault(format!("`{}` is not known", ops.get(i))))?;
                let mut key = source.origin(kernels.get(i));
                key.extend([dtypes.get(i).into(), side.into(), Cell::from(heads[i])]);
                sheet.add(t, key, tokens[i], ms[i])?;
            }
        }
    }
    Ok(sheet.text(&["system", "engine", "version", "kernel", "dtype", "side", "heads"]))
}

fn gemm(package: &mut Package) -> Result<String, ImportError> {
    let mut sheet = Sheet::default();
    for (system, engine) in SYSTEMS.iter().flat_map(|&s| SERVING.map(|e| (s, e))) {
        let source = Source::open(package, system, "gemm", engine, "gemm_perf")?;
        let t = &source.table;
        let (kernels, dtypes) = (t.texts("kernel_source")?, t.texts("gemm_dtype")?);
        let (m, n, k, ms) = (t.numbers("m")?, t.numbers("n")?, t.numbers("k")?, t.floats("latency")?);
        for i in 0..t.rows() {
            if dtypes.get(i) == "bfloat16" && n[i] >= 128 && k[i] >= 128 && GEMM_ROWS.contains(&m[i]) {
                let mut key = source.origin(kernels.get(i));
                key.extend([dtypes.get(i).into(), Cell::from(n[i]), Cell::from(k[i])]);
                sheet.add(t, key, m[i], ms[i])?;
            }
        }
    }
    Ok(sheet.text(&["system", "engine", "version", "kernel", "dtype", "n", "k"]))
}

fn attention(package: &mut Package) -> Result<String, ImportError> {
    let mut sheet = Sheet::default();
    for (system, engine) in SYSTEMS.iter().flat_map(|&s| SERVING.map(|e| (s, e))) {
        let source = Source::open(package, system, "attention", engine, "generation_attention_perf")?;
        let t = &source.table;
        let (kernels, kv) = (t.texts("kernel_source")?, t.texts("kv_cache_dtype")?);
        let (batch, heads, kv_heads) =
            (t.numbers("batch_size")?, t.numbers("num_heads")?, t.numbers("num_key_value_heads")?);
        let (dim, step, window, ms) =
            (t.numbers("head_dim")?, t.numbers("step")?, t.numbers("window_size")?, t.floats("latency")?);
        for i in 0..t.rows() {
            if GQA_HEADS.contains(&(heads[i], kv_heads[i])) && dim[i] == 128 && window[i] == 0 {
                let mut key = source.origin(kernels.get(i));
                key.push(kv.get(i).into());
                key.extend([heads[i], kv_heads[i], dim[i], batch[i]].map(Cell::from));
                sheet.add(t, key, step[i] + 1, ms[i])?;
            }
        }
    }
    Ok(sheet.text(&["system", "engine", "version", "kernel", "kv", "heads", "kv_heads", "head_dim", "batch"]))
}
