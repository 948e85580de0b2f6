//! Collectives by message size. Engines switch algorithm at thresholds; a table is one piece per algorithm, and no look-up
//! interpolates from one piece into another.

use super::csv::Sheet;
use super::domain::Line;
use super::key::{Keyed, Origin, Wanted, Wish, select};
use super::{Looked, OpTables, TableError};

/// How the collective was launched when it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Launch {
    /// Replayed inside a CUDA graph.
    Graph,
    /// Launched from the host, call by call.
    Eager,
    /// The package does not say.
    Unstated,
}

impl Launch {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Graph, Self::Eager, Self::Unstated];

    /// As the tables write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Graph => "graph",
            Self::Eager => "eager",
            Self::Unstated => "unstated",
        }
    }
}

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collective {
    /// Every rank ends with the sum.
    AllReduce,
    /// Every rank ends with every rank's part.
    AllGather,
}

impl Collective {
    /// As the tables write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
        }
    }
}

/// Which collective table.
#[derive(Clone, Copy, Debug)]
pub struct ArKey<'k> {
    /// Machine, engine (or `nccl`), version, kernel.
    pub from: Wanted<'k>,
    /// The collective.
    pub op: Collective,
    /// In a graph or not.
    pub launch: Launch,
    /// Ranks that take part.
    pub ranks: u32,
}

/// One collective on one machine at one number of ranks.
#[derive(Clone, Debug)]
pub struct AllReduceTable {
    origin: Origin,
    op: Collective,
    launch: Launch,
    ranks: u32,
    switches: Vec<f64>,
    /// One more than switches; piece i serves sizes from switch i−1 (inclusive) to switch i (exclusive).
    pieces: Vec<Line>,
}

impl AllReduceTable {
    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The collective, how it was launched, over how many ranks.
    #[must_use]
    pub fn what(&self) -> (Collective, Launch, u32) {
        (self.op, self.launch, self.ranks)
    }

    /// Message sizes in bytes from which another algorithm runs.
    #[must_use]
    pub fn switches(&self) -> &[f64] {
        &self.switches
    }

    /// Smallest and largest message measured, in bytes.
    #[must_use]
    pub fn bytes(&self) -> (f64, f64) {
        (self.pieces[0].first(), self.pieces[self.pieces.len() - 1].last())
    }

    /// The measured points (bytes, µs).
    #[must_use]
    pub fn points(&self) -> Vec<(f64, f64)> {
        self.pieces.iter().flat_map(Line::points).collect()
    }

    /// The time of a message of `bytes` (an all-reduce of T rows of width h in bf16: 2·T·h).
    ///
    /// Between the last point under a switch and the switch itself the lower algorithm still runs: its last two points are
    /// continued affinely in bytes, which is how α + M/BW grows.
    #[must_use]
    pub fn us(&self, bytes: f64) -> Looked {
        let piece = self.switches.partition_point(|&s| s <= bytes);
        let line = &self.pieces[piece];
        let (low, high) = self.bytes();
        Looked { us: line.at(bytes).us, inside: bytes >= low && bytes <= high }
    }
}

impl Keyed for AllReduceTable {
    const OP: &'static str = "collective";

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn rest(&self) -> Vec<String> {
        vec![self.op.name().into(), self.launch.name().into(), self.ranks.to_string()]
    }
}

impl OpTables {
    /// The collective for `key`.
    ///
    /// # Errors
    /// [`TableError::Missing`] with the nearest keys, [`TableError::Ambiguous`].
    pub fn allreduce(&self, key: &ArKey<'_>) -> Result<&AllReduceTable, TableError> {
        let mut wishes: Vec<Wish> = key.from.wishes();
        wishes.push(("op", Some(key.op.name().into())));
        wishes.push(("mode", Some(key.launch.name().into())));
        wishes.push(("ranks", Some(key.ranks.to_string())));
        select(&self.allreduce, &wishes)
    }

    /// Every collective.
    #[must_use]
    pub fn allreduce_tables(&self) -> &[AllReduceTable] {
        &self.allreduce
    }
}

/// Key columns of `allreduce.csv`; the axis is bytes.
pub(crate) const KEYS: &[&str] = &["system", "engine", "version", "kernel", "op", "mode", "ranks", "switches"];

pub(crate) fn read(sheet: &Sheet<'_>) -> Result<Vec<AllReduceTable>, TableError> {
    let mut tables = Vec::new();
    for row in &sheet.rows {
        let op = [Collective::AllReduce, Collective::AllGather].into_iter().find(|o| o.name() == row.key[4]);
        let op = op.ok_or_else(|| sheet.fault(row, format!("collective `{}` is not known", row.key[4])))?;
        let launch = Launch::ALL.into_iter().find(|l| l.name() == row.key[5]);
        let launch = launch.ok_or_else(|| sheet.fault(row, format!("mode `{}` is not known", row.key[5])))?;
        let switches: Option<Vec<f64>> = match row.key[7] {
            "-" => Some(Vec::new()),
            list => list.split(';').map(|s| s.parse::<u32>().ok().map(f64::from)).collect(),
        };
        let switches = switches.filter(|s| s.windows(2).all(|w| w[0] < w[1]));
        let switches =
            switches.ok_or_else(|| sheet.fault(row, format!("switches `{}` are not increasing sizes", row.key[7])))?;
        let points = sheet.points(row);
        let mut pieces = Vec::with_capacity(switches.len() + 1);
        for i in 0..=switches.len() {
            let low = if i == 0 { 0.0 } else { switches[i - 1] };
            let high = switches.get(i).copied().unwrap_or(f64::INFINITY);
            let inside: Vec<(f64, f64)> = points.iter().copied().filter(|p| p.0 >= low && p.0 < high).collect();
            pieces.push(
                Line::new(&inside).ok_or_else(|| sheet.fault(row, format!("no message from {low} to {high} bytes")))?,
            );
        }
        let ranks = sheet.number(row, 6, "ranks")?;
        tables.push(AllReduceTable { origin: Origin::of(&row.key), op, launch, ranks, switches, pieces });
    }
    Ok(tables)
}
