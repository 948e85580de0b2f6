//! How an engine serves a model on a machine: what the hardware and the model leave open.

use std::fmt;

use super::buckets::Buckets;
use super::load::{Doc, Fields};
use super::{Hardware, Model, Overheads, ProfileError, Sources};

/// A deployment: one engine, one machine, and the choices that change a step's time.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    /// Name of the profile.
    pub name: String,
    /// Serving engine.
    pub engine: Engine,
    /// Its version, as published.
    pub version: String,
    /// Hardware profile that it was written for: a shipped name, or the name in a user's file.
    pub hardware: String,
    /// Tensor-parallel ranks.
    pub ranks: u32,
    /// CUDA graphs or eager launches.
    pub execution: Execution,
    /// Sizes at which graphs were captured; None where execution is eager.
    pub graphs: Option<Buckets>,
    /// All-reduce of activations.
    pub allreduce: Allreduce,
    /// Bytes of a cached element: 2 (bf16) or 1 (FP8).
    pub kv_bytes_per_element: f64,
    /// Share of device memory that the engine may fill with weights, drafter, activations and cache.
    pub memory_fraction: f64,
    /// Of that, what is neither weights nor cache, bytes per rank: activations, graphs, communication buffers.
    pub reserve_bytes: u64,
    /// Cache tokens that are allotted together.
    pub page_tokens: u32,
    /// Most rows of a step at which shared experts run beside the routed ones, on a stream of their own; 0: never.
    pub shared_stream_rows: u32,
    /// Distinct experts under this deployment's load without trees: name or path of an expert model.
    pub experts: String,
    /// What is known about tree attention in this engine.
    pub tree_attention: TreeAttention,
    /// Which op tables price which op.
    pub tables: Tables,
    /// Times that no table has.
    pub overheads: Overheads,
    /// What this deployment does not model, one clause each.
    pub not_modelled: Vec<String>,
    /// Where each field comes from.
    pub sources: Sources,
}

/// A serving engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    Trtllm,
    /// This project's own CUDA engine.
    Treeline,
}

impl Engine {
    /// Name in files and op tables.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm",
            Self::Treeline => "treeline",
        }
    }
}

/// How kernels are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// One launch of a captured graph a step.
    Graph,
    /// One launch a kernel: a step lasts at least as long as its launches.
    Eager,
}

/// All-reduce algorithm; bytes are those of the reduced vector, `rows × hidden × 2`.
#[derive(Debug, Clone, PartialEq)]
pub enum Allreduce {
    /// None: one rank's work alone, and what the ranks exchange is left out of every tier.
    None,
    /// Every rank reads all others: α + (p − 1)·M / link.
    OneShot {
        /// Latency, µs.
        alpha_us: f64,
    },
    /// Reduce-scatter, then all-gather: α + 2(p − 1)/p·M / link.
    TwoShot {
        /// Latency, µs.
        alpha_us: f64,
    },
    /// Reduction in the switch: α + M / bandwidth.
    Nvls {
        /// Latency, µs.
        alpha_us: f64,
        /// Bandwidth, bytes/s.
        bytes_s: f64,
    },
    /// The engine's measured table, which switches algorithm at these sizes.
    Table {
        /// First size in bytes of each further algorithm, ascending; a look-up never interpolates through one.
        switch_bytes: Vec<u64>,
    },
}

/// Whether the engine can run a tree at all, and with which kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeAttention {
    /// Whether the engine's fast decode kernel takes a tree mask today. Otherwise a tree's curve is hypothetical.
    pub native: bool,
    /// What runs, or would have to.
    pub note: String,
}

/// Which op tables price which op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    /// MoE layer.
    pub moe: Option<TableRef>,
    /// All-reduce.
    pub allreduce: Option<TableRef>,
    /// Decode attention.
    pub attention: TableRef,
    /// Whether that table is of the whole attention module, projections included, and not of the kernel alone.
    pub attention_module: bool,
    /// Grouped-query decode attention of a drafter; None where no drafter can be priced by a table.
    pub draft_attention: Option<TableRef>,
    /// Dense products.
    pub gemm: TableRef,
}

/// One op table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRef {
    /// Engine whose kernel was measured.
    pub engine: Engine,
    /// Version of that engine.
    pub version: String,
    /// Kernel, where the version was measured with several.
    pub kernel: Option<String>,
}

impl Deployment {
    /// Reads a profile's text; `file` is for messages.
    ///
    /// # Errors
    /// A key that is missing, unknown or out of range, or fields that contradict each other.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProfileError> {
        let doc = Doc::parse(text, file)?;
        let (f, mut s) = (doc.root(), Sources::default());
        let s = &mut s;
        let execution = match f.field::<String>("execution", s)?.as_str() {
            "graph" => Execution::Graph,
            "eager" => Execution::Eager,
            other => return Err(f.error("execution", format!("\"{other}\" is not known; \"graph\" and \"eager\" are"))),
        };
        let graphs = f.table("graphs")?.map(|g| Buckets::read(g, s)).transpose()?;
        if (execution == Execution::Graph) != graphs.is_some() {
            return Err(
                f.error("graphs", "belongs to `execution = \"graph\"` and to nothing else: give both or neither")
            );
        }
        let memory_fraction = f.positive("memory_fraction", s)?;
        if memory_fraction > 1.0 {
            return Err(f.error("memory_fraction", format!("is {memory_fraction}; it is a share of at most 1")));
        }
        let kv = f.positive("kv_bytes_per_element", s)?;
        if kv != 1.0 && kv != 2.0 {
            return Err(f.error("kv_bytes_per_element", format!("is {kv}; bf16 has 2, FP8 has 1")));
        }
        let ranks = f.size("ranks", 1024, s)?;
        let deployment = Self {
            name: f.text("name")?,
            engine: engine(&f)?,
            version: f.text("version")?,
            hardware: f.text("hardware")?,
            ranks,
            execution,
            graphs,
            allreduce: allreduce(f.need("allreduce")?, s)?,
            kv_bytes_per_element: kv,
            memory_fraction,
            reserve_bytes: f.field("reserve_bytes", s)?,
            page_tokens: f.size("page_tokens", 65_536, s)?,
            shared_stream_rows: f.field("shared_stream_rows", s)?,
            experts: f.field("experts", s)?,
            tree_attention: tree_attention(f.need("tree_attention")?)?,
            tables: tables(f.need("tables")?, s)?,
            overheads: Overheads::read(f.need("overheads")?, s)?,
            not_modelled: f.texts("not_modelled")?,
            sources: std::mem::take(s),
        };
        if deployment.ranks > 1
            && matches!(deployment.allreduce, Allreduce::Table { .. })
            && deployment.tables.allreduce.is_none()
        {
            let problem = "missing: `allreduce.algorithm` is \"table\", so name whose table, or choose a formula there";
            return Err(f.error("tables.allreduce", problem));
        }
        f.finish()?;
        Ok(deployment)
    }

    /// Whether its ranks exchange anything that is priced: all-reduces, gathers.
    #[must_use]
    pub fn communicates(&self) -> bool {
        self.ranks > 1 && self.allreduce != Allreduce::None
    }

    /// Checks that it fits a machine and a model.
    ///
    /// # Errors
    /// Another machine than the one it was written for, more ranks than the machine joins, or ranks that do not divide heads,
    /// experts' width or vocabulary.
    pub fn check(&self, hardware: &Hardware, model: &Model) -> Result<(), ProfileError> {
        super::check::deployment(self, hardware, model)
    }
}

fn engine(f: &Fields<'_, '_>) -> Result<Engine, ProfileError> {
    let name = f.text("engine")?;
    let known = [Engine::Vllm, Engine::Sglang, Engine::Trtllm, Engine::Treeline];
    known
        .into_iter()
        .find(|e| e.key() == name)
        .ok_or_else(|| f.error("engine", format!("\"{name}\" is not known; {} are", known.map(Engine::key).join(", "))))
}

fn allreduce(f: Fields<'_, '_>, s: &mut Sources) -> Result<Allreduce, ProfileError> {
    let all = match f.field::<String>("algorithm", s)?.as_str() {
        "none" => Allreduce::None,
        "one-shot" => Allreduce::OneShot { alpha_us: f.positive("alpha_us", s)? },
        "two-shot" => Allreduce::TwoShot { alpha_us: f.positive("alpha_us", s)? },
        "nvls" => Allreduce::Nvls { alpha_us: f.positive("alpha_us", s)?, bytes_s: f.positive("bytes_s", s)? },
        "table" => {
            let switch_bytes: Vec<u64> = f.field("switch_bytes", s)?;
            if !switch_bytes.is_sorted_by(|a, b| a < b) {
                return Err(f.error("switch_bytes", "must ascend"));
            }
            Allreduce::Table { switch_bytes }
        }
        other => {
            let known = "\"none\", \"one-shot\", \"two-shot\", \"nvls\" and \"table\" are";
            return Err(f.error("algorithm", format!("\"{other}\" is not known; {known}")));
        }
    };
    f.finish()?;
    Ok(all)
}

fn tree_attention(f: Fields<'_, '_>) -> Result<TreeAttention, ProfileError> {
    let native = match f.text("kernel")?.as_str() {
        "native" => true,
        "hypothetical" => false,
        other => {
            let known = "\"native\" and \"hypothetical\" are";
            return Err(f.error("kernel", format!("\"{other}\" is not known; {known}")));
        }
    };
    let tree = TreeAttention { native, note: f.text("note")? };
    f.finish()?;
    Ok(tree)
}

fn tables(f: Fields<'_, '_>, s: &mut Sources) -> Result<Tables, ProfileError> {
    let mut read = |key: &str| -> Result<Option<TableRef>, ProfileError> {
        let Some(t) = f.table(key)? else { return Ok(None) };
        let table = TableRef { engine: engine(&t)?, version: t.field("version", s)?, kernel: t.opt("kernel", s)? };
        t.finish()?;
        Ok(Some(table))
    };
    let (moe, allreduce, draft_attention) = (read("moe")?, read("allreduce")?, read("draft_attention")?);
    let missing = |key: &str| f.error(key, "missing: name the engine and version whose kernel was measured");
    let attention = read("attention")?.ok_or_else(|| missing("attention"))?;
    let gemm = read("gemm")?.ok_or_else(|| missing("gemm"))?;
    let attention_module = match f.field::<String>("attention_form", s)?.as_str() {
        "kernel" => false,
        "module" => true,
        other => {
            let known = "\"kernel\" and \"module\" are";
            return Err(f.error("attention_form", format!("\"{other}\" is not known; {known}")));
        }
    };
    f.finish()?;
    Ok(Tables { moe, allreduce, attention, attention_module, draft_attention, gemm })
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "deployment {}", self.name)?;
        writeln!(f, "  {} {} on {} × {}", self.engine.key(), self.version, self.ranks, self.hardware)?;
        let kind = if self.tree_attention.native { "native" } else { "hypothetical" };
        writeln!(f, "  tree attention: {kind}; {}", self.tree_attention.note)?;
        for clause in &self.not_modelled {
            writeln!(f, "  not modelled: {clause}")?;
        }
        for clause in self.borrowed() {
            writeln!(f, "  other tables: {clause}")?;
        }
        write!(f, "{}", self.sources)
    }
}
