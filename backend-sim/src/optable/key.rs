//! Who measured a table, and how a key finds it.

use super::TableError;

/// Where a table comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The machine: `h200`, `b200`, `b300`.
    pub system: String,
    /// The engine that ran the kernel: `vllm`, `sglang`, `trtllm`, `nccl`.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// The kernel, as the package names it.
    pub kernel: String,
}

impl Origin {
    pub(crate) fn of(key: &[&str]) -> Self {
        Self { system: key[0].into(), engine: key[1].into(), version: key[2].into(), kernel: key[3].into() }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{} {}", self.system, self.engine, self.version, self.kernel)
    }
}

/// Which machine, engine and version a key asks for. `None` accepts any, and is an error where several match.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'k> {
    /// The machine: `h200`, `b200`, `b300`.
    pub system: &'k str,
    /// The engine.
    pub engine: &'k str,
    /// Its version.
    pub version: Option<&'k str>,
    /// The kernel.
    pub kernel: Option<&'k str>,
}

/// One coordinate of a key: its name, what is asked (`None`: any).
pub(crate) type Wish = (&'static str, Option<String>);

impl Wanted<'_> {
    pub(crate) fn wishes(&self) -> Vec<Wish> {
        vec![
            ("system", Some(self.system.into())),
            ("engine", Some(self.engine.into())),
            ("version", self.version.map(Into::into)),
            ("kernel", self.kernel.map(Into::into)),
        ]
    }
}

/// A table that a key can find.
pub(crate) trait Keyed {
    /// The operation, for messages.
    const OP: &'static str;
    /// The values of the coordinates after the origin, in the order of the wishes.
    fn rest(&self) -> Vec<String>;
    /// Where it comes from.
    fn origin(&self) -> &Origin;

    /// All coordinates.
    fn coordinates(&self) -> Vec<String> {
        let o = self.origin();
        let mut all = vec![o.system.clone(), o.engine.clone(), o.version.clone(), o.kernel.clone()];
        all.extend(self.rest());
        all
    }
}

/// How many keys a message lists.
const LISTED: usize = 6;

/// The one table that meets every wish.
pub(crate) fn select<'t, T: Keyed>(tables: &'t [T], wishes: &[Wish]) -> Result<&'t T, TableError> {
    let met = |t: &T| -> usize {
        t.coordinates()
            .iter()
            .zip(wishes)
            .filter(|(have, (_, want))| want.as_ref().is_none_or(|want| want == *have))
            .count()
    };
    let mut found = tables.iter().filter(|t| met(t) == wishes.len());
    let Some(first) = found.next() else {
        let mut near: Vec<(usize, &T)> = tables.iter().map(|t| (met(t), t)).collect();
        near.sort_by_key(|(met, _)| std::cmp::Reverse(*met));
        return Err(TableError::Missing {
            op: T::OP,
            wanted: wanted(wishes),
            note: super::excluded::why(T::OP, wishes),
            exists: near.into_iter().take(LISTED).map(|(_, t)| describe(t, wishes)).collect(),
        });
    };
    let mut more: Vec<String> = found.map(|t| describe(t, wishes)).collect();
    if more.is_empty() {
        return Ok(first);
    }
    more.insert(0, describe(first, wishes));
    more.truncate(LISTED);
    Err(TableError::Ambiguous { op: T::OP, wanted: wanted(wishes), exists: more })
}

fn wanted(wishes: &[Wish]) -> String {
    let parts: Vec<String> =
        wishes.iter().filter_map(|(name, want)| want.as_ref().map(|w| format!("{name} {w}"))).collect();
    parts.join(", ")
}

fn describe<T: Keyed>(table: &T, wishes: &[Wish]) -> String {
    let parts: Vec<String> =
        table.coordinates().iter().zip(wishes).map(|(have, (name, _))| format!("{name} {have}")).collect();
    parts.join(", ")
}
