//! `rounds.parquet`: one row per request and round.
//!
//! Columns: `cell` (key), `round` (of the cell), `request`, `step` (of the request), `start` (position of the root),
//! `requests` (in the round), `asked` (nodes allowed), `rows` (verified, root included), `depth`, `accepted`, `emitted`,
//! `expected` (Φ), `waves`, `experts` (mean distinct ones per MoE layer, of the whole round), `graph` (which captured graph
//! ran; absent = eager), a time in ms per phase (of the whole round), `power_w`, `fault`. What was not measured is absent.
//! Policy, budget, temperature and concurrency of a cell are in its key and in `cells/<key>.json`.

use super::files::write_atomic;
use crate::trace::{Column, schema, write_group};
use anyhow::Context as _;
use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use treeline_core::{Phase, PhaseTimes, RoundLog};

/// One request's part of a round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RoundRow {
    cell: String,
    round: u64,
    request: u64,
    step: u32,
    start: u32,
    requests: u32,
    asked: u32,
    rows: u32,
    depth: u32,
    accepted: Option<u32>,
    emitted: Option<u32>,
    expected: Option<f64>,
    waves: u32,
    experts: Option<f64>,
    graph: Option<u32>,
    times: Option<PhaseTimes>,
    fault: Option<String>,
}

impl RoundRow {
    /// The rows of one round of the cell `key`.
    pub fn of<'l>(key: &'l str, log: &'l RoundLog) -> impl Iterator<Item = Self> + use<'l> {
        log.entries.iter().map(move |e| {
            let step = e.result.as_ref().ok();
            Self {
                cell: key.to_owned(),
                round: log.round,
                request: e.request,
                step: e.step,
                start: e.start,
                requests: log.entries.len() as u32,
                asked: e.asked,
                rows: e.rows,
                depth: e.depth,
                accepted: step.map(|s| s.accepted()),
                emitted: step.map(|s| s.emitted.len() as u32),
                expected: Some(e.expected).filter(|x| x.is_finite()),
                waves: log.waves,
                experts: log.experts_mean(),
                graph: log.graph,
                times: log.times,
                fault: e.result.as_ref().err().map(ToString::to_string),
            }
        })
    }
}

fn columns(rows: &[RoundRow]) -> Vec<(&'static str, Column)> {
    fn u32s(rows: &[RoundRow], f: impl Fn(&RoundRow) -> u32) -> Column {
        Column::U32(rows.iter().map(f).collect())
    }
    fn maybe(rows: &[RoundRow], f: impl Fn(&RoundRow) -> Option<u32>) -> Column {
        Column::MaybeU32(rows.iter().map(f).collect())
    }
    fn floats(rows: &[RoundRow], f: impl Fn(&RoundRow) -> Option<f64>) -> Column {
        Column::MaybeF64(rows.iter().map(f).collect())
    }
    let mut columns = vec![
        ("cell", Column::Text(rows.iter().map(|r| r.cell.clone()).collect())),
        ("round", Column::U64(rows.iter().map(|r| r.round).collect())),
        ("request", Column::U64(rows.iter().map(|r| r.request).collect())),
        ("step", u32s(rows, |r| r.step)),
        ("start", u32s(rows, |r| r.start)),
        ("requests", u32s(rows, |r| r.requests)),
        ("asked", u32s(rows, |r| r.asked)),
        ("rows", u32s(rows, |r| r.rows)),
        ("depth", u32s(rows, |r| r.depth)),
        ("accepted", maybe(rows, |r| r.accepted)),
        ("emitted", maybe(rows, |r| r.emitted)),
        ("expected", floats(rows, |r| r.expected)),
        ("waves", u32s(rows, |r| r.waves)),
        ("experts", floats(rows, |r| r.experts)),
        ("graph", maybe(rows, |r| r.graph)),
    ];
    let names = ["prefill_ms", "draft_ms", "tree_ms", "verify_ms", "walk_ms", "commit_ms", "host_ms"];
    for (name, phase) in names.into_iter().zip(Phase::ALL) {
        columns.push((name, floats(rows, |r| r.times.map(|t| t.of(phase)))));
    }
    // No backend of this build measures power.
    columns.push(("power_w", floats(rows, |_| None)));
    columns.push(("fault", Column::MaybeText(rows.iter().map(|r| r.fault.clone()).collect())));
    columns
}

fn writer() -> anyhow::Result<SerializedFileWriter<Vec<u8>>> {
    let schema = Arc::new(parse_message_type(&schema("treeline_rounds", &columns(&[])))?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    Ok(SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?)
}

/// Writes the rows of one cell.
pub(super) fn write_part(path: &Path, rows: &[RoundRow]) -> anyhow::Result<()> {
    let mut file = writer()?;
    if !rows.is_empty() {
        write_group(&mut file, &columns(rows))?;
    }
    write_atomic(path, &file.into_inner()?).with_context(|| path.display().to_string())
}

/// Joins the parts of all cells into one file, row groups as they are.
pub(super) fn join(path: &Path, parts: &[std::path::PathBuf]) -> anyhow::Result<()> {
    let mut out = writer()?;
    for part in parts {
        let named = || part.display().to_string();
        let file = File::open(part).with_context(named)?;
        let reader = SerializedFileReader::new(File::open(part)?).with_context(named)?;
        for group in reader.metadata().row_groups() {
            let mut target = out.next_row_group()?;
            for column in group.columns() {
                let close = ColumnCloseResult {
                    bytes_written: u64::try_from(column.compressed_size())?,
                    rows_written: u64::try_from(group.num_rows())?,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                target.append_column(&file, close)?;
            }
            target.close()?;
        }
    }
    write_atomic(path, &out.into_inner()?).with_context(|| path.display().to_string())
}

/// Whether `path` is a whole part.
pub(super) fn readable(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| crate::trace::envelope_holds(&bytes))
        && File::open(path).is_ok_and(|file| SerializedFileReader::new(file).is_ok())
}
