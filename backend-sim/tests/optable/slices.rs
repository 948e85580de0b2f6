//! The shipped tables against another extract of the same package, where it is at hand.

use super::from;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use treeline_sim::optable::*;

/// Lines of a file beside the repository: cells of each, header left out.
fn extract(name: &str) -> Option<Vec<Vec<String>>> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/optables").join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: no {}", path.display());
        return None;
    };
    Some(text.lines().skip(1).map(|l| l.split(',').map(String::from).collect()).collect())
}

/// Cells of the extract that the shipped tables have: the fastest of the extract's repeats, and the shipped time.
#[derive(Default)]
struct Agreement(BTreeMap<Vec<String>, (f64, f64)>);

impl Agreement {
    fn meet(&mut self, row: &[String], looked: Looked) {
        let (us, key) = row.split_last().unwrap();
        assert!(looked.inside, "{row:?}");
        let cell = self.0.entry(key.to_vec()).or_insert((f64::INFINITY, looked.us));
        cell.0 = cell.0.min(us.parse().unwrap());
    }

    /// At least `cells` cells, every one the same to four digits.
    fn holds(self, cells: usize) {
        assert!(self.0.len() >= cells, "{} cells", self.0.len());
        for (key, (theirs, ours)) in &self.0 {
            assert!((ours / theirs - 1.0).abs() < 1e-3, "{key:?}: {ours}, the extract has {theirs}");
        }
        println!("{} cells agree", self.0.len());
    }
}

fn engine(ver: &str) -> (&str, &str) {
    ver.split_once('/').unwrap()
}

fn number<T: std::str::FromStr>(cell: &str) -> T {
    cell.parse().ok().unwrap()
}

#[test]
fn moe_layers() {
    let Some(rows) = extract("kimi_moe_layer_us.csv") else { return };
    let mut agreement = Agreement::default();
    for r in rows.iter().filter(|r| r[3] == "int4_wo") {
        let (e, v) = engine(&r[1]);
        let key = MoeKey {
            from: Wanted { kernel: Some(&r[2]), ..from(&r[0], e, v) },
            shape: MoeShape::KIMI_INT4,
            tp: number(&r[4]),
        };
        let Ok(table) = OpTables::shipped().moe(&key) else { continue };
        if let Some(routing) = Routing::ALL.into_iter().find(|x| x.name() == r[5]) {
            agreement.meet(r, table.routed(routing, number(&r[6])).unwrap());
        }
    }
    agreement.holds(2000);
}

#[test]
fn all_reduces() {
    let Some(rows) = extract("allreduce_us.csv") else { return };
    let mut agreement = Agreement::default();
    for r in &rows {
        let (e, v) = engine(&r[1]);
        let launch = if r[2].ends_with("_graph") { Launch::Graph } else { Launch::Eager };
        let from = Wanted { kernel: Some(&r[2]), ..from(&r[0], e, v) };
        let key = ArKey { from, op: Collective::AllReduce, launch, ranks: number(&r[4]) };
        let Ok(table) = OpTables::shipped().allreduce(&key) else { continue };
        let bytes = 2.0 * number::<f64>(&r[5]);
        if bytes <= table.bytes().1 {
            agreement.meet(r, table.us(bytes));
        }
    }
    agreement.holds(1500);
}

#[test]
fn mla_kernels() {
    let Some(rows) = extract("mla_decode_us.csv") else { return };
    let mut agreement = Agreement::default();
    for r in &rows {
        let (e, v) = engine(&r[1]);
        let from = Wanted { kernel: Some(&r[2]), ..from(&r[0], e, v) };
        let key = MlaKey { from, part: MlaPart::Kernel, kv: &r[3], heads: number(&r[4]) };
        if let Ok(table) = OpTables::shipped().mla(&key) {
            agreement.meet(r, table.us(number(&r[5]), number(&r[6])));
        }
    }
    agreement.holds(4000);
}

#[test]
fn products() {
    let Some(rows) = extract("gemm_bf16_us.csv") else { return };
    let mut agreement = Agreement::default();
    // The extract's B300 rows of SGLang are an older campaign's, on another machine; version 0.12.0 replaced them.
    let replaced = |r: &[String]| r[0] == "b300" && r[1] == "sglang/0.5.14";
    for r in rows.iter().step_by(7).filter(|r| !replaced(r)) {
        let (e, v) = engine(&r[1]);
        let Ok(table) = OpTables::shipped().gemm(&GemmKey { from: from(&r[0], e, v), dtype: &r[2] }) else { continue };
        let (m, n, k): (f64, f64, f64) = (number(&r[3]), number(&r[4]), number(&r[5]));
        let (ns, ks) = table.axes();
        let kept = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0].contains(&m);
        if kept && ns.contains(&n) && ks.contains(&k) {
            agreement.meet(r, table.us(m, n, k));
        }
    }
    agreement.holds(2000);
}
