//! `treeline calibrate FILE`: what a step costs on this machine, as the [cost] section of an experiment.

use super::Usage;
use super::out::Out;
use crate::config::Overrides;
use std::path::{Component, Path};
use treeline_policies::Registry;

/// Measures and prints the curve. The models, context and backend are the experiment's; its own [cost] is not needed.
pub(super) fn run(file: &Path, quiet: bool, registry: &Registry, out: &Out) -> anyhow::Result<()> {
    let experiment = super::load(file, registry, &Overrides { without_cost: true, ..Overrides::default() })?;
    if experiment.backend.live().is_none() {
        return Err(Usage(format!("{} replays a trace: only real models can be timed", file.display())).into());
    }
    let curve = crate::run::calibrate(&experiment, quiet)?;
    let ms: Vec<f64> = curve.ms().iter().map(|ms| (ms * 1e3).round() / 1e3).collect();
    // As typed from the checkout; of a path from elsewhere the name alone, since a result that names a machine's folders
    // cannot be published.
    let plain = file.components().all(|part| matches!(part, Component::Normal(_)));
    let shown = if plain { Some(file.as_os_str()) } else { file.file_name() };
    let name = shown.map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let source = toml::Value::from(format!("treeline calibrate {name}"));
    out.data(&format!("[cost.curve]\nrows = {:?}\nms = {ms:?}\nsource = {source}", curve.rows()))
}
