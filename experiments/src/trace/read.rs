//! A file into a trace.

use super::columns::fits;
use super::{META_KEY, TraceFileError, VERSION, VERSION_KEY, guard, seal};
use parquet::basic::Type as Physical;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArrayType, DataType, FloatType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::path::Path;
use treeline_core::End;
use treeline_core::trace::{Expansion, Position, Trace, TraceMeta, TraceRequest};

/// Reads a trace file.
///
/// # Errors
/// Damage, another kind of file, a version or column that this build does not know, or content that contradicts itself:
/// each named with the file.
pub fn read(path: &Path) -> Result<Trace, TraceFileError> {
    // A named pipe would wait for a writer for ever, a device has no end.
    if !std::fs::metadata(path).map_err(|e| TraceFileError::io(path, e))?.is_file() {
        return Err(TraceFileError::content(path, "is not an ordinary file"));
    }
    let bytes = std::fs::read(path).map_err(|e| TraceFileError::io(path, e))?;
    let file = File::open(path).map_err(|e| TraceFileError::io(path, e))?;
    let content = |why: String| TraceFileError::content(path, why);
    // A file of another writer has no seal.
    if seal::sealed(&bytes) == Some(false) {
        return Err(content("is damaged: its length or checksum is not what was written".into()));
    }
    // Decoders of foreign files meet bytes that no checksum vouches for; a panic of theirs is an error of the file.
    let decoded = std::panic::catch_unwind(|| decode(&bytes, file));
    let trace = decoded.unwrap_or_else(|_| Err("its pages cannot be decoded".into())).map_err(content)?;
    treeline_sim::validate(&trace).map_err(|e| content(e.to_string()))?;
    Ok(trace)
}

fn decode(bytes: &[u8], file: File) -> Result<Trace, String> {
    guard::envelope(bytes)?;
    let reader = SerializedFileReader::new(file).map_err(|e| format!("is no readable Parquet file: {e}"))?;
    guard::check(bytes, reader.metadata())?;
    let pairs = reader.metadata().file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    let value = |key: &str| pairs.iter().find(|p| p.key == key).and_then(|p| p.value.as_deref());
    let version = value(VERSION_KEY).ok_or_else(|| format!("is no trace: its metadata has no `{VERSION_KEY}`"))?;
    if version != VERSION.to_string() {
        return Err(format!("has trace version {version}, this build reads version {VERSION}"));
    }
    let meta = value(META_KEY).ok_or_else(|| format!("its metadata has no `{META_KEY}`"))?;
    let meta: TraceMeta = serde_json::from_str(meta).map_err(|e| format!("metadata `{META_KEY}`: {e}"))?;
    let mut trace = Trace { meta, requests: Vec::new() };
    for group in 0..reader.num_row_groups() {
        Group::read(&reader, group)?.append(&mut trace)?;
    }
    Ok(trace)
}

/// Values of a column with the end of each row's.
struct Lists<T> {
    ends: Vec<usize>,
    values: Vec<T>,
}

impl<T> Lists<T> {
    fn row(&self, row: usize) -> &[T] {
        let end = |row: usize| self.ends.get(row).copied().unwrap_or(self.values.len());
        let begin = row.checked_sub(1).map_or(0, end);
        self.values.get(begin..end(row)).unwrap_or(&[])
    }

    fn one(&self, row: usize, name: &str) -> Result<&T, String> {
        self.row(row).first().ok_or_else(|| format!("column `{name}`, row {row}: no value"))
    }

    fn map<U>(self, f: impl FnMut(T) -> U) -> Lists<U> {
        Lists { ends: self.ends, values: self.values.into_iter().map(f).collect() }
    }
}

/// The columns of one row group.
struct Group {
    rows: usize,
    request: Lists<u64>,
    domain: Lists<String>,
    prompt_tokens: Lists<u32>,
    max_new: Lists<u32>,
    emitted: Lists<u32>,
    end: Lists<String>,
    index: Lists<u32>,
    token: Lists<u32>,
    truth: Lists<i32>,
    row_end: Lists<u32>,
    logp: Lists<f32>,
    id: Lists<u32>,
    parent: Lists<u32>,
    rank: Lists<u32>,
}

impl Group {
    fn read(reader: &SerializedFileReader<File>, group: usize) -> Result<Self, String> {
        let ints = |name| column::<Int32Type>(reader, group, name, Physical::INT32);
        let u32s = |name| Ok::<_, String>(ints(name)?.map(|x| x as u32));
        let texts = |name| {
            let raw = column::<ByteArrayType>(reader, group, name, Physical::BYTE_ARRAY)?;
            Ok::<_, String>(raw.map(|b| String::from_utf8_lossy(b.data()).into_owned()))
        };
        let request = column::<Int64Type>(reader, group, "request", Physical::INT64)?.map(|x| x as u64);
        Ok(Self {
            rows: request.ends.len(),
            request,
            domain: texts("domain")?,
            prompt_tokens: u32s("prompt_tokens")?,
            max_new: u32s("max_new")?,
            emitted: u32s("emitted")?,
            end: texts("end")?,
            index: u32s("index")?,
            token: u32s("token")?,
            truth: ints("truth")?,
            row_end: u32s("row_end")?,
            logp: column::<FloatType>(reader, group, "logp", Physical::FLOAT)?,
            id: u32s("id")?,
            parent: u32s("parent")?,
            rank: u32s("rank")?,
        })
    }

    /// Adds the rows to the requests that they belong to; a response may go on from the group before.
    fn append(&self, trace: &mut Trace) -> Result<(), String> {
        let conditional = trace.meta.conditional;
        for row in 0..self.rows {
            let (id, index) = (*self.request.one(row, "request")?, *self.index.one(row, "index")?);
            let emitted = *self.emitted.one(row, "emitted")?;
            if index == 0 {
                trace.requests.push(self.request(row, id, emitted)?);
            }
            let request = trace.requests.last_mut().filter(|r| r.id == id);
            let request = request.ok_or_else(|| format!("request {id} does not begin with its token 0"))?;
            // Every row before the last left one position.
            if request.positions.len() != index as usize || index >= emitted {
                return Err(format!("request {id}: token {index} of {emitted} is out of order"));
            }
            request.tokens.extend(self.token.row(row).first());
            if index + 1 < emitted {
                let p = self.position(row, conditional).map_err(|why| format!("request {id}, token {index}: {why}"))?;
                request.positions.push(p);
            }
        }
        Ok(())
    }

    fn request(&self, row: usize, id: u64, emitted: u32) -> Result<TraceRequest, String> {
        let end = match self.end.one(row, "end")?.as_str() {
            "eos" => End::Eos,
            "length" => End::Length,
            "context" => End::Context,
            other => return Err(format!("request {id}: unknown end `{other}`")),
        };
        Ok(TraceRequest {
            id,
            domain: self.domain.one(row, "domain")?.clone(),
            prompt_tokens: *self.prompt_tokens.one(row, "prompt_tokens")?,
            max_new: *self.max_new.one(row, "max_new")?,
            tokens: Vec::new(),
            emitted,
            positions: Vec::new(),
            end,
        })
    }

    fn position(&self, row: usize, conditional: bool) -> Result<Position, String> {
        let (ends, logp, ids) = (self.row_end.row(row), self.logp.row(row), self.id.row(row));
        let truth = self.truth.row(row).iter().map(|&r| u32::try_from(r).ok()).collect();
        if !conditional {
            let (ends, logp, ids) = (ends.to_vec(), logp.to_vec(), ids.to_vec());
            return Ok(Position { ends, logp, ids, truth, expansions: Vec::new() });
        }
        let (parents, ranks) = (self.parent.row(row), self.rank.row(row));
        if parents.len() != ends.len()
            || ranks.len() != ends.len()
            || ends.last().map_or(0, |&e| e as usize) != logp.len()
        {
            return Err(format!("{} rows for {} parents and {} ranks", ends.len(), parents.len(), ranks.len()));
        }
        let mut begin = 0;
        let mut expansions = Vec::with_capacity(ends.len());
        for (i, &end) in ends.iter().enumerate() {
            let end = end as usize;
            let row = logp.get(begin..end).ok_or("the ends of its rows do not ascend")?;
            let ids = if ids.is_empty() { &[] } else { ids.get(begin..end).ok_or("a row has no token ids")? };
            expansions.push(Expansion { parent: parents[i], rank: ranks[i], logp: row.to_vec(), ids: ids.to_vec() });
            begin = end;
        }
        Ok(Position { truth, expansions, ..Position::default() })
    }
}

/// One column of a row group: found by its first path element, so that lists written as `x.list.element` are found too.
fn column<T: DataType>(
    reader: &SerializedFileReader<File>,
    group: usize,
    name: &str,
    physical: Physical,
) -> Result<Lists<T::T>, String> {
    let failed = |e: parquet::errors::ParquetError| format!("column `{name}`: {e}");
    let schema = reader.metadata().file_metadata().schema_descr();
    let found = (0..schema.num_columns()).find(|&c| schema.column(c).path().parts().first().is_some_and(|p| p == name));
    let at = found.ok_or_else(|| format!("has no column `{name}`"))?;
    let descriptor = schema.column(at);
    if !fits(&descriptor, physical) {
        return Err(format!("column `{name}` is no list or value of {physical}"));
    }
    let group = reader.get_row_group(group).map_err(failed)?;
    let mut typed = get_typed_column_reader::<T>(group.get_column_reader(at).map_err(failed)?);
    let (mut def, mut rep, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut levels = 0;
    loop {
        let (records, _, read) =
            typed.read_records(4096, Some(&mut def), Some(&mut rep), &mut values).map_err(failed)?;
        levels += read;
        if records == 0 && read == 0 {
            break;
        }
    }
    let mut ends = Vec::new();
    let mut count = 0;
    for level in 0..levels {
        if rep.get(level).is_none_or(|&r| r == 0) {
            ends.push(count);
        }
        count += usize::from(def.get(level).is_none_or(|&d| d == descriptor.max_def_level()));
        if let Some(end) = ends.last_mut() {
            *end = count;
        }
    }
    Ok(Lists { ends, values })
}
