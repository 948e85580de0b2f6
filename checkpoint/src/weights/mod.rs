//! The tensors of a checkpoint folder: one `model.safetensors`, or shards named by `model.safetensors.index.json`, memory-mapped.

mod digest;
mod header;
mod view;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use memmap2::Mmap;
use serde_json::Value;

pub use digest::{Digest, FileDigest, Thoroughness, digest};
pub use safetensors::Dtype;
pub use view::TensorView;

use crate::config::Quantization;
use crate::error::{Error, Result};
use crate::int4::PackedInt4;
use crate::json::{Fields, open_plain, parse, read_limited};

/// Largest index file that is read; a model of 10⁶ tensors needs about 100 MB.
const INDEX_LIMIT: u64 = 256 << 20;

/// More shards than any checkpoint has; each holds a file open.
const SHARD_LIMIT: usize = 4096;

/// All tensors of a checkpoint folder.
///
/// The files must not be changed or truncated while this lives: the operating system would end the process on the next read.
#[derive(Debug)]
pub struct Weights {
    dir: PathBuf,
    shards: Vec<Shard>,
    /// Tensor name → shard and place in it; ordered, so that every listing is.
    tensors: BTreeMap<String, (usize, header::Entry)>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    map: Mmap,
}

/// A linear weight as it is stored.
#[derive(Debug, Clone)]
pub enum Linear<'a> {
    /// bf16, f16 or f32, [out, in].
    Dense(TensorView<'a>),
    /// Packed INT4 with a scale per group.
    Int4(PackedInt4<'a>),
}

impl Weights {
    /// Maps the checkpoint in `dir` and checks every header; no tensor is read.
    ///
    /// # Errors
    /// No checkpoint in the folder; a damaged or truncated shard; an index and shards that disagree.
    pub fn open(dir: &Path) -> Result<Self> {
        let (single, index) = (dir.join("model.safetensors"), dir.join("model.safetensors.index.json"));
        let mut weights = Self { dir: dir.to_owned(), shards: Vec::new(), tensors: BTreeMap::new() };
        if index.exists() {
            weights.open_index(&index)?;
        } else if single.exists() {
            weights.open_shard(&single)?;
        } else {
            let what = "neither model.safetensors nor model.safetensors.index.json is in this folder";
            return Err(Error::io(dir, std::io::Error::new(std::io::ErrorKind::NotFound, what)));
        }
        Ok(weights)
    }

    fn open_index(&mut self, index: &Path) -> Result<()> {
        let value = parse(&read_limited(index, INDEX_LIMIT)?, index)?;
        let fields = Fields::new(index, "", &value)?;
        fields.ignore(&["metadata"]);
        let Some(map) = fields.get("weight_map").and_then(Value::as_object) else {
            return Err(fields.error("weight_map", "missing, or not an object of tensor name to shard"));
        };
        fields.finish()?;
        let mut by_shard: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (tensor, shard) in map {
            let name = shard.as_str().filter(|s| is_plain_file_name(s)).ok_or_else(|| {
                Error::tensor(index, tensor, "its shard must be the name of a file in the same folder")
            })?;
            by_shard.entry(name).or_default().push(tensor);
        }
        if by_shard.is_empty() || by_shard.len() > SHARD_LIMIT {
            let problem = format!("names {} shards; from 1 to {SHARD_LIMIT} are allowed", by_shard.len());
            return Err(Error::field(index, "weight_map", problem));
        }
        for (shard, tensors) in by_shard {
            let path = self.dir.join(shard);
            let before = self.shards.len();
            self.open_shard(&path)?;
            if let Some(missing) = tensors.iter().find(|t| self.tensors.get(**t).is_none_or(|(s, _)| *s != before)) {
                return Err(Error::tensor(
                    &path,
                    missing,
                    format!("is not in this shard, but {} says so", index.display()),
                ));
            }
        }
        // A tensor that the index does not list would be read from nowhere in other loaders.
        if let Some((extra, (shard, _))) = self.tensors.iter().find(|(t, _)| !map.contains_key(*t)) {
            let problem = format!("is in this shard, but not in {}", index.display());
            return Err(Error::tensor(&self.shards[*shard].path, extra, problem));
        }
        Ok(())
    }

    #[allow(unsafe_code, reason = "a memory map is unsafe to make; see the comment at the one line")]
    fn open_shard(&mut self, path: &Path) -> Result<()> {
        let file = open_plain(path)?;
        // SAFETY: the map is private to this struct and only ever read. The documented condition of `Weights` is that nobody
        // changes or truncates the file meanwhile; if one did, values would change under us or the read would fault, but every
        // bit pattern is a valid u8, and all offsets were checked against the length of the map itself.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
        let index = self.shards.len();
        for (name, entry) in header::read(path, &map)? {
            if let Some((other, _)) = self.tensors.get(&name) {
                let problem = format!("is also in {}", self.shards[*other].path.display());
                return Err(Error::tensor(path, &name, problem));
            }
            self.tensors.insert(name, (index, entry));
        }
        self.shards.push(Shard { path: path.to_owned(), map });
        Ok(())
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All tensor names, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Bytes of all tensors together.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|(_, e)| (e.end - e.start) as u64).sum()
    }

    /// Whether a tensor is there.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// A tensor of whatever shape and type it has.
    ///
    /// # Errors
    /// It is missing.
    pub fn any(&self, name: &str) -> Result<TensorView<'_>> {
        let Some((name, (shard, entry))) = self.tensors.get_key_value(name) else {
            return Err(Error::tensor(&self.dir, name, "missing: no shard of this checkpoint has it"));
        };
        let shard = &self.shards[*shard];
        Ok(TensorView {
            path: &shard.path,
            name,
            dtype: entry.dtype,
            shape: &entry.shape,
            bytes: &shard.map[entry.start..entry.end],
        })
    }

    /// A tensor that must have this shape.
    ///
    /// # Errors
    /// It is missing or has another shape.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>> {
        let view = self.any(name)?;
        if view.shape != shape {
            return Err(view.error(format!("has shape {:?}, but the config asks for {shape:?}", view.shape)));
        }
        Ok(view)
    }

    /// A tensor of this shape as f32.
    ///
    /// # Errors
    /// It is missing, of another shape, or neither bf16, f16 nor f32.
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.tensor(name, shape)?.to_f32()
    }

    /// The weight of a linear module (`module` without `.weight`) of shape [out, in]: packed INT4 where `quantization` covers
    /// it, else `module.weight`.
    ///
    /// # Errors
    /// As [`Weights::tensor`] and [`PackedInt4::read`]; also where the stored form is not the one that the config announces.
    pub fn linear(
        &self,
        module: &str,
        out: usize,
        inp: usize,
        quantization: Option<&Quantization>,
    ) -> Result<Linear<'_>> {
        let (dense, packed) = (format!("{module}.weight"), format!("{module}.weight_packed"));
        let (wanted, other) = match quantization.is_some_and(|q| q.covers(module)) {
            true => (&packed, &dense),
            false => (&dense, &packed),
        };
        if !self.contains(wanted) && self.contains(other) {
            let problem =
                format!("the config says that `{wanted}` is stored instead: correct `quantization_config.ignore`");
            return Err(self.any(other)?.error(problem));
        }
        if wanted == &packed {
            return Ok(Linear::Int4(PackedInt4::read(self, module, out, inp)?));
        }
        let view = self.tensor(&dense, &[out, inp])?;
        match view.dtype {
            Dtype::BF16 | Dtype::F16 | Dtype::F32 => Ok(Linear::Dense(view)),
            other => Err(view.error(format!("is {other:?}, but BF16, F16 or F32 is needed"))),
        }
    }

    /// Tensors whose name `used` does not hold and that start with none of the `ignored` prefixes, ascending.
    pub fn unused(&self, used: impl Fn(&str) -> bool, ignored: &[&str]) -> Vec<&str> {
        self.names().filter(|n| !used(n) && !ignored.iter().any(|p| n.starts_with(p))).collect()
    }

    /// Fails if [`Weights::unused`] finds any.
    ///
    /// # Errors
    /// Names the first surplus tensor, its shard, and how many there are.
    pub fn refuse_unused(&self, used: impl Fn(&str) -> bool, ignored: &[&str]) -> Result<()> {
        let surplus = self.unused(used, ignored);
        match surplus.first() {
            None => Ok(()),
            Some(first) => {
                let problem = format!(
                    "the model has no place for it ({} such tensors): the config is another model's",
                    surplus.len()
                );
                Err(self.any(first)?.error(problem))
            }
        }
    }
}

/// A name without any folder in it: an index must not reach outside its own folder.
fn is_plain_file_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(p)), None) if p == name)
}

impl Linear<'_> {
    /// Shape [out, in].
    pub fn shape(&self) -> [usize; 2] {
        match self {
            // `Weights::linear` checked that there are two dimensions.
            Linear::Dense(view) => [view.shape[0], view.shape[1]],
            Linear::Int4(packed) => [packed.out(), packed.inp()],
        }
    }

    /// The weight as f32, row-major [out, in].
    ///
    /// # Errors
    /// `out` of another length than out × in.
    pub fn read_f32(&self, out: &mut [f32]) -> Result<()> {
        match self {
            Linear::Dense(view) => view.read_f32(out),
            Linear::Int4(packed) => packed.dequantise(out),
        }
    }

    /// As [`Linear::read_f32`], into new memory.
    ///
    /// # Errors
    /// None for what [`Weights::linear`] returned.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let [rows, cols] = self.shape();
        let mut out = vec![0.0; rows * cols];
        self.read_f32(&mut out)?;
        Ok(out)
    }
}
