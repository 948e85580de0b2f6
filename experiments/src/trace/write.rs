//! A trace into a file.

use super::columns::{Column, path as column_path, schema, write_group};
use super::{META_KEY, TraceFileError, VERSION, VERSION_KEY, seal};
use parquet::basic::{Compression, Encoding};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::path::Path;
use std::sync::Arc;
use treeline_core::End;
use treeline_core::trace::{Position, Trace, TraceMeta, TraceRequest};

/// Rows of a row group: keeps the columns of a group within tens of megabytes.
const GROUP: usize = 8192;

/// Writes a trace to `path`, through a temporary file that is renamed.
///
/// # Errors
/// A trace that contradicts itself (checked first, so that no file is written that cannot be read), or the file system.
pub fn write(path: &Path, trace: &Trace) -> std::result::Result<(), TraceFileError> {
    treeline_sim::validate(trace).map_err(|e| TraceFileError::content(path, e.to_string()))?;
    let bytes = encode(trace).map_err(|e| TraceFileError::content(path, format!("cannot be encoded: {e}")))?;
    crate::run::write_atomic(path, &bytes).map_err(|e| TraceFileError::io(path, e))
}

/// The bytes of the file.
pub(super) fn encode(trace: &Trace) -> Result<Vec<u8>> {
    let declared = columns(&trace.meta, &[]);
    let schema = Arc::new(parse_message_type(&schema("treeline_trace", &declared))?);
    let meta = serde_json::to_string(&trace.meta)
        .map_err(|e| parquet::errors::ParquetError::General(format!("metadata: {e}")))?;
    let pairs =
        vec![KeyValue::new(VERSION_KEY.to_owned(), VERSION.to_string()), KeyValue::new(META_KEY.to_owned(), meta)];
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(pairs))
        // Sorted log-probabilities share their high bytes: split by byte they shrink, in a dictionary they grow.
        .set_column_dictionary_enabled(column_path("logp"), false)
        .set_column_encoding(column_path("logp"), Encoding::BYTE_STREAM_SPLIT)
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    file.write_all(&seal::open())?;
    let rows: Vec<Row<'_>> = trace.requests.iter().flat_map(rows).collect();
    for group in rows.chunks(GROUP) {
        write_group(&mut file, &columns(&trace.meta, group))?;
    }
    let mut bytes = file.into_inner()?;
    seal::close(&mut bytes);
    Ok(bytes)
}

/// One emitted token.
struct Row<'t> {
    request: &'t TraceRequest,
    index: u32,
    token: Option<u32>,
    drafted: Option<&'t Position>,
}

fn rows(request: &TraceRequest) -> impl Iterator<Item = Row<'_>> {
    (0..request.emitted).map(move |index| Row {
        request,
        index,
        token: request.tokens.get(index as usize).copied(),
        drafted: request.positions.get(index as usize),
    })
}

/// The word for an end in files.
pub(super) fn end_name(end: End) -> &'static str {
    match end {
        End::Eos => "eos",
        End::Length => "length",
        End::Context => "context",
    }
}

fn columns(meta: &TraceMeta, rows: &[Row<'_>]) -> Vec<(&'static str, Column)> {
    fn each<'r, T>(rows: &'r [Row<'r>], f: impl Fn(&TraceRequest) -> T) -> Vec<T> {
        rows.iter().map(|r| f(r.request)).collect()
    }
    fn drafted<'r, T>(rows: &'r [Row<'r>], f: impl Fn(&Position) -> Vec<T>) -> Vec<Vec<T>> {
        rows.iter().map(|r| r.drafted.map_or_else(Vec::new, &f)).collect()
    }
    let rank = |rank: &Option<u32>| rank.map_or(-1, |r| r as i32);
    let truth = |p: &Position| p.truth.iter().map(rank).collect();
    let conditional = meta.conditional;
    let row_end = |p: &Position| match conditional {
        false => p.ends.clone(),
        true => p
            .expansions
            .iter()
            .scan(0, |end, e| {
                *end += e.logp.len() as u32;
                Some(*end)
            })
            .collect(),
    };
    let logp = |p: &Position| match conditional {
        false => p.logp.clone(),
        true => p.expansions.iter().flat_map(|e| e.logp.iter().copied()).collect(),
    };
    let id = |p: &Position| match conditional {
        false => p.ids.clone(),
        true => p.expansions.iter().flat_map(|e| e.ids.iter().copied()).collect(),
    };
    vec![
        ("request", Column::U64(each(rows, |r| r.id))),
        ("domain", Column::Text(each(rows, |r| r.domain.clone()))),
        ("prompt_tokens", Column::U32(each(rows, |r| r.prompt_tokens))),
        ("max_new", Column::U32(each(rows, |r| r.max_new))),
        ("emitted", Column::U32(each(rows, |r| r.emitted))),
        ("end", Column::Text(each(rows, |r| end_name(r.end).to_owned()))),
        ("index", Column::U32(rows.iter().map(|r| r.index).collect())),
        ("token", Column::MaybeU32(rows.iter().map(|r| r.token).collect())),
        ("truth", Column::I32s(drafted(rows, truth))),
        ("row_end", Column::U32s(drafted(rows, row_end))),
        ("logp", Column::F32s(drafted(rows, logp))),
        ("id", Column::U32s(drafted(rows, id))),
        ("parent", Column::U32s(drafted(rows, |p| p.expansions.iter().map(|e| e.parent).collect()))),
        ("rank", Column::U32s(drafted(rows, |p| p.expansions.iter().map(|e| e.rank).collect()))),
    ]
}
