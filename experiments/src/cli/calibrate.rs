//! `treeline calibrate FILE`: what a step costs on this machine, as the [cost] section of an experiment.

use super::Usage;
use super::out::Out;
use crate::config::{Backend, Overrides};
use anyhow::Context as _;
use std::path::{Component, Path};
use treeline_policies::Registry;

/// Measures and prints the curve. The models, context and backend are the experiment's; its own [cost] is not needed.
pub(super) fn run(file: &Path, quiet: bool, registry: &Registry, out: &Out) -> anyhow::Result<()> {
    let experiment = super::load(file, registry, &Overrides { without_cost: true, ..Overrides::default() })?;
    if experiment.backend.live().is_none() {
        return Err(Usage(format!("{} replays a trace: only real models can be timed", file.display())).into());
    }
    let curve = crate::run::calibrate(&experiment, quiet)?;
    let command = command(file);
    let ms: Vec<f64> = curve.ms().iter().map(|ms| (ms * 1e3).round() / 1e3).collect();
    let source = toml::Value::from(command);
    out.data(&format!("[cost.curve]\nrows = {:?}\nms = {ms:?}\nsource = {source}", curve.rows()))
}

/// Measures and writes a calibration file; says on stdout how well it predicts what it was not fitted to.
pub(super) fn write(file: &Path, to: &Path, quiet: bool, registry: &Registry, out: &Out) -> anyhow::Result<()> {
    let experiment = super::load(file, registry, &Overrides { without_cost: true, ..Overrides::default() })?;
    if matches!(experiment.backend, Backend::Sim(_)) {
        return Err(Usage(format!("{} runs no models: there is nothing to time", file.display())).into());
    }
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(Usage(format!("--out {}: there is no folder {}", to.display(), folder.display())).into());
    }
    let calibration = crate::run::calibration(&experiment, &format!("{} --out FILE", command(file)), quiet)?;
    let error = calibration.measure();
    let steps = calibration.points.len();
    let text = calibration.to_json(&to.display().to_string())?;
    crate::run::write_atomic(to, format!("{text}\n").as_bytes()).with_context(|| to.display().to_string())?;
    out.data(&format!(
        "{}: {} steps, {} of them held out: median error {:.1} %, 90th percentile {:.1} %, bias {:+.1} %",
        to.display(),
        steps,
        error.points,
        100.0 * error.median,
        100.0 * error.p90,
        100.0 * error.bias
    ))
}

/// The command as typed from the checkout; of a path from elsewhere the name alone, since a result that names a machine's
/// folders cannot be published.
fn command(file: &Path) -> String {
    let plain = file.components().all(|part| matches!(part, Component::Normal(_)));
    let shown = if plain { Some(file.as_os_str()) } else { file.file_name() };
    format!("treeline calibrate {}", shown.map_or_else(String::new, |n| n.to_string_lossy().into_owned()))
}
