//! `treeline doctor`: what this machine can run, and why not the rest. Of the libraries, only the driver's is loaded.

mod libraries;
mod machine;

use super::out::Out;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Findings {
    machine: machine::Machine,
    models: Vec<Model>,
    gpu: libraries::Gpu,
    verdicts: Vec<Verdict>,
}

/// One folder of the bundled pair.
#[derive(Debug, Serialize)]
struct Model {
    name: &'static str,
    /// Where it is; `null` when it is not found.
    folder: Option<PathBuf>,
    /// Bytes of its files.
    bytes: Option<u64>,
    /// What keeps it from being read.
    fault: Option<String>,
}

/// Whether one thing can run.
#[derive(Debug, Serialize)]
struct Verdict {
    what: &'static str,
    can_run: bool,
    why: String,
}

/// Looks and prints.
pub(super) fn run(out: &Out, json: bool) -> anyhow::Result<()> {
    let findings = look();
    if json { out.json(&findings) } else { out.data(&text(&findings, out)) }
}

fn look() -> Findings {
    let machine = machine::look();
    let models: Vec<Model> = ["mini-target", "mini-dflash", "mini-ar"].into_iter().map(model).collect();
    let gpu = libraries::look();
    let pair = models.iter().all(|m| m.folder.is_some() && m.fault.is_none());
    let cpu = Verdict {
        what: "backend cpu",
        can_run: true,
        why: match pair {
            true => "real models in f32; the bundled pair is here".to_owned(),
            false => "real models in f32, yours: the bundled pair is not complete here".to_owned(),
        },
    };
    let sim = Verdict {
        what: "backend sim",
        can_run: true,
        why: "replays traces, and prices steps of the deployments that `treeline profiles` lists; needs nothing"
            .to_owned(),
    };
    let cuda = Verdict {
        what: "backend cuda",
        can_run: gpu.missing.is_empty(),
        why: match gpu.missing.as_slice() {
            [] => "real models on a GPU, in bf16 or f32".to_owned(),
            missing => missing.join("; "),
        },
    };
    Findings { machine, models, gpu, verdicts: vec![cpu, sim, cuda] }
}

/// Looks for a model of the bundled pair from the working folder upwards.
fn model(name: &'static str) -> Model {
    let relative = [Path::new("experiments/models").join(name), Path::new("models").join(name)];
    let here = std::env::current_dir().unwrap_or_default();
    let mut folders = here.ancestors().flat_map(|a| relative.iter().map(move |r| a.join(r)));
    let Some(folder) = folders.find(|f| f.is_dir()) else {
        return Model { name, folder: None, bytes: None, fault: None };
    };
    let mut bytes = 0;
    let mut weights = false;
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        bytes += entry.metadata().map_or(0, |m| m.len());
        weights |= entry.path().extension().is_some_and(|e| e == "safetensors");
    }
    let fault = match (folder.join("config.json").is_file(), weights) {
        (false, _) => Some("no config.json".to_owned()),
        (_, false) => Some("no safetensors file".to_owned()),
        _ => None,
    };
    Model { name, folder: Some(folder), bytes: Some(bytes), fault }
}

fn text(f: &Findings, out: &Out) -> String {
    let mut text = String::new();
    let m = &f.machine;
    let memory = m.memory_bytes.map_or_else(|| "unknown".to_owned(), |b| format!("{:.1} GB", b as f64 / 1e9));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", out.bold("Machine"));
    let _ = writeln!(text, "  {} cores, memory {memory}, {}", m.cores, m.cpu.as_deref().unwrap_or("unknown CPU"));
    let _ = writeln!(text, "  {} {}; {}", m.os, m.arch, features(&m.features));
    let _ = writeln!(text, "{}", out.bold("Bundled models"));
    for model in &f.models {
        let what = match (&model.folder, &model.fault) {
            (None, _) => "not found (looked for experiments/models from here upwards)".to_owned(),
            (Some(folder), Some(fault)) => format!("{}: {fault}", folder.display()),
            (Some(folder), None) => {
                format!("{:.1} MB in {}", model.bytes.unwrap_or(0) as f64 / 1e6, folder.display())
            }
        };
        let _ = writeln!(text, "  {}: {what}", model.name);
    }
    let _ = writeln!(text, "{}", out.bold("GPU"));
    gpu_text(&mut text, &f.gpu);
    let _ = writeln!(text, "{}", out.bold("Can run"));
    for v in &f.verdicts {
        let mark = if v.can_run { out.green("yes") } else { "no ".to_owned() };
        let _ = writeln!(text, "  {mark}  {}: {}", v.what, v.why);
    }
    text
}

fn gpu_text(text: &mut String, gpu: &libraries::Gpu) {
    let cuda = gpu.cuda.as_ref().map_or_else(String::new, |c| format!(", serves CUDA {c}"));
    let _ = writeln!(text, "  driver: {}{cuda}", gpu.driver.as_deref().unwrap_or("none"));
    let _ = writeln!(text, "  devices: {}", gpu.devices.len());
    for (ordinal, d) in gpu.devices.iter().enumerate() {
        let free = d.free_bytes.map_or_else(String::new, |b| format!(", {:.1} GB free", b as f64 / 1e9));
        let code = d.arch.map_or_else(|| "no kernels for it".to_owned(), |a| format!("kernels for {a}"));
        let memory = d.memory_bytes as f64 / 1e9;
        let _ = writeln!(
            text,
            "    {ordinal}: {}, {memory:.1} GB{free}, compute capability {}, {code}",
            d.name, d.capability
        );
    }
    for library in &gpu.libraries {
        let at = library.found.as_ref().map_or_else(
            || format!("not found (looked for {})", library.names.join(", ")),
            |p| p.display().to_string(),
        );
        let _ = writeln!(text, "  {}: {at}", library.what);
        if let Some(note) = &library.note {
            let _ = writeln!(text, "    {note}");
        }
    }
    let cache = gpu.kernel_cache.as_ref().map_or_else(|| "none".to_owned(), |p| p.display().to_string());
    let _ = writeln!(text, "  compiled kernels: {cache} (TREELINE_CACHE moves it)");
}

fn features(features: &[machine::Feature]) -> String {
    let list =
        |present: bool| features.iter().filter(|f| f.present == present).map(|f| f.name).collect::<Vec<_>>().join(", ");
    match (list(true), list(false)) {
        (yes, no) if no.is_empty() => format!("has {yes}"),
        (yes, no) if yes.is_empty() => format!("lacks {no}: matrix products will be slow"),
        (yes, no) => format!("has {yes}, lacks {no}"),
    }
}
