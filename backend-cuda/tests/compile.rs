//! Every kernel compiles for every architecture, within the registers, stack and spills that `kernels/resources.tsv` records.
//!
//! Needs NVRTC, no GPU. Without NVRTC the test says `skipped`; `REQUIRE_NVRTC=1` turns that into a failure.

#![allow(clippy::print_stderr, reason = "a test says what it skipped and what it found")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use treeline_cuda::device::{Arch, Define, cubin};
use treeline_cuda::{CudaError, kernels};

/// One line of `specs.tsv`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Spec {
    file: String,
    entry: String,
    defines: String,
    hot: bool,
}

/// What a line of `resources.tsv` is about, and its numbers.
type Table = BTreeMap<[String; 4], [u32; 4]>;

fn path(name: &str) -> PathBuf {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(root).join("kernels").join(name)
}

/// The lines of a table, without comments, each with `columns` cells.
fn lines(name: &str, columns: usize) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path(name)).unwrap_or_default();
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    let cells = lines.map(|l| l.split('\t').map(|c| c.trim().to_owned()).collect::<Vec<_>>());
    cells.inspect(|c| assert_eq!(c.len(), columns, "{name}: {c:?} has not {columns} columns")).collect()
}

fn specs() -> Vec<Spec> {
    let only = std::env::var("TREELINE_KERNELS").unwrap_or_default();
    let spec = |c: &Vec<String>| {
        assert!(c[3] == "yes" || c[3] == "no", "specs.tsv: {c:?}: hot is yes or no");
        Spec { file: c[0].clone(), entry: c[1].clone(), defines: c[2].clone(), hot: c[3] == "yes" }
    };
    lines("specs.tsv", 4).iter().map(spec).filter(|s| s.file.contains(&only)).collect()
}

/// Defines as the device takes them. Names must be static: a test may leak.
fn defines(text: &str) -> Vec<Define> {
    let pair = |word: &str| {
        let (name, value) = word.split_once('=').unwrap_or_else(|| panic!("specs.tsv: `{word}` is not NAME=VALUE"));
        let value = value.parse().unwrap_or_else(|_| panic!("specs.tsv: `{word}` has no integer value"));
        (&*name.to_owned().leak(), value)
    };
    text.split_whitespace().filter(|w| *w != "-").map(pair).collect()
}

/// Every specialisation that `specs` names, for one architecture; what goes wrong is a line of the second part.
fn build(specs: &[Spec], arch: Arch) -> (Table, Vec<String>) {
    let (mut table, mut faults) = (Table::new(), Vec::new());
    let units: BTreeSet<(&str, &str)> = specs.iter().map(|s| (s.file.as_str(), s.defines.as_str())).collect();
    for (file, text) in units {
        let found = match cubin(file, &defines(text), arch) {
            Ok(cubin) => cubin.resources(),
            Err(e) => {
                faults.push(format!("{file} with {text}: {e}"));
                continue;
            }
        };
        for spec in specs.iter().filter(|s| s.file == file && s.defines == text) {
            let Some(r) = found.iter().find(|r| r.entry == spec.entry) else {
                faults.push(format!("{file} with {text} has no kernel `{}`", spec.entry));
                continue;
            };
            if spec.hot && r.stack + r.spill_stores + r.spill_loads > 0 {
                faults.push(format!(
                    "{file} with {text}, {}: a hot kernel uses memory for registers: {r:?}",
                    arch.name()
                ));
            }
            let key = [&spec.file, &spec.entry, &spec.defines, &arch.name().to_owned()].map(Clone::clone);
            table.insert(key, [r.registers, r.stack, r.spill_stores + r.spill_loads, r.shared]);
        }
    }
    (table, faults)
}

fn recorded() -> Table {
    let number = |c: &String| c.parse().unwrap_or_else(|_| panic!("resources.tsv: `{c}` is no number"));
    let row = |c: Vec<String>| ([0, 1, 2, 3].map(|i| c[i].clone()), [4, 5, 6, 7].map(|i| number(&c[i])));
    lines("resources.tsv", 8).into_iter().map(row).collect()
}

fn write(table: &Table) {
    let mut text = String::from(
        "# Written by UPDATE_RESOURCES=1 cargo test -p treeline-cuda --test compile, with NVRTC 13.0.88.\n\
         # file\tentry\tdefines\tarch\tregisters\tstack bytes\tspilled bytes\tstatic shared bytes\n",
    );
    for (key, values) in table {
        writeln!(text, "{}\t{}", key.join("\t"), values.map(|v| v.to_string()).join("\t")).unwrap();
    }
    std::fs::write(path("resources.tsv"), text).unwrap();
}

#[test]
fn every_kernel_compiles_within_its_recorded_resources() {
    let specs = specs();
    if let Err(e @ CudaError::Missing { .. }) = cubin("fill.cu", &[], Arch::Sm90a) {
        assert!(std::env::var_os("REQUIRE_NVRTC").is_none_or(|v| v != "1"), "REQUIRE_NVRTC=1, but: {e}");
        eprintln!("skipped: {e}");
        return;
    }
    let built = std::thread::scope(|s| {
        let specs = &specs;
        Arch::GPUS.map(|arch| s.spawn(move || build(specs, arch))).map(|t| t.join().unwrap())
    });
    let (mut now, mut faults) = (Table::new(), Vec::new());
    for (table, fault) in built {
        now.extend(table);
        faults.extend(fault);
    }
    let known = recorded();
    if std::env::var_os("UPDATE_RESOURCES").is_some_and(|v| v == "1") {
        let files: BTreeSet<&String> = specs.iter().map(|s| &s.file).collect();
        let kept = known.into_iter().filter(|(key, _)| !files.contains(&key[0]) && path(&key[0]).is_file());
        write(&kept.chain(now).collect());
    } else {
        for (key, values) in &now {
            let name = key.join(" ");
            match known.get(key) {
                None => faults.push(format!("{name}: not recorded")),
                Some(old) if old != values => faults.push(format!("{name}: {values:?}, recorded {old:?}")),
                Some(_) => {}
            }
        }
        let stale = known.keys().filter(|k| !now.contains_key(*k) && specs.iter().any(|s| s.file == k[0]));
        faults.extend(stale.map(|k| format!("{}: recorded, but specs.tsv does not name it", k.join(" "))));
    }
    let help = "registers, stack, spills, static shared bytes; UPDATE_RESOURCES=1 records what is found";
    assert!(faults.is_empty(), "{} faults ({help}):\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_kernel_has_a_line_in_the_table_of_specialisations() {
    let named: BTreeSet<(String, String)> =
        lines("specs.tsv", 4).into_iter().map(|c| (c[0].clone(), c[1].clone())).collect();
    let mut missing = Vec::new();
    for (file, text) in kernels::FILES.iter().filter(|(name, _)| name.ends_with(".cu")) {
        for line in text.lines() {
            let call = ["TL_KERNEL(", "TL_KERNEL_RESIDENT("].iter().find_map(|c| line.strip_prefix(c));
            let Some((entry, _)) = call.and_then(|rest| rest.split_once(',')) else { continue };
            if !named.contains(&((*file).to_owned(), entry.trim().to_owned())) {
                missing.push(format!("{file}: {entry}"));
            }
        }
    }
    assert!(missing.is_empty(), "kernels/specs.tsv has no line for {missing:?}");
}
