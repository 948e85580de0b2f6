//! Files: equal after a round trip, refused when damaged, small enough to share.

use super::*;
use proptest::prelude::*;
use std::path::PathBuf;
use treeline_core::End;
use treeline_core::trace::{Expansion, Position, Trace, TraceMeta, TraceRequest};

/// Reproducible numbers in [0, 1).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() * n as f32) as u32
    }

    /// Log-probabilities of a softmax over logits that fall off like a drafter's.
    fn row(&mut self, width: u32) -> Vec<f32> {
        let mut logits: Vec<f32> = (0..width).map(|r| -1.3 * ((r + 1) as f32).ln() - self.next()).collect();
        logits.sort_by(|a, b| b.total_cmp(a));
        let norm = logits.iter().map(|x| x.exp()).sum::<f32>().ln() + 0.1;
        logits.iter().map(|x| x - norm).collect()
    }

    fn ids(&mut self, width: u32) -> Vec<u32> {
        let first = self.below(1000);
        (0..width).map(|r| first + r * 3).collect()
    }
}

fn truth(n: &mut Numbers, width: u32) -> Option<u32> {
    Some(n.below(width + 2)).filter(|&r| r < width)
}

fn block(n: &mut Numbers, depth: u32, width: u32, behind: u32) -> Position {
    let mut p = Position::default();
    for d in 0..depth {
        let width = width.saturating_sub(n.below(3)).max(1);
        p.logp.extend(n.row(width));
        p.ids.extend(n.ids(width));
        p.ends.push(p.logp.len() as u32);
        if d < behind {
            p.truth.push(truth(n, width));
        }
    }
    p
}

fn conditional(n: &mut Numbers, width: u32) -> Position {
    let mut p = Position::default();
    for (parent, rank) in [(0, 0), (0, 0), (0, 1), (1, 0), (2, 1)] {
        p.expansions.push(Expansion { parent, rank, logp: n.row(width), ids: n.ids(width) });
    }
    p.truth = vec![Some(1)];
    p
}

/// Requests of 1, 2, … tokens, ended in every way.
fn sample(seed: u64, conditional_drafter: bool, depth: u32, width: u32, requests: u32) -> Trace {
    let n = &mut Numbers(seed);
    let context = 40 + requests;
    let request = |i: u32, n: &mut Numbers| {
        let emitted = 1 + i;
        let (end, max_new, prompt_tokens) = match i % 3 {
            0 => (End::Length, emitted, 5),
            1 => (End::Eos, emitted + 4, 5),
            _ => (End::Context, emitted + 9, context - emitted + 1),
        };
        let position = |behind: u32, n: &mut Numbers| match conditional_drafter {
            true => conditional(n, width),
            false => block(n, depth, width, behind),
        };
        TraceRequest {
            id: u64::from(i) * 7,
            domain: ["code", "prose"][i as usize % 2].into(),
            prompt_tokens,
            max_new,
            tokens: (0..emitted).map(|_| n.below(5000)).collect(),
            emitted,
            positions: (1..emitted).rev().map(|behind| position(behind, n)).collect(),
            end,
        }
    };
    let meta = TraceMeta {
        depth,
        width,
        conditional: conditional_drafter,
        ids: true,
        vocab: 8192,
        context,
        temperature: 0.7,
        seed,
        source: "synthetic".into(),
    };
    Trace { meta, requests: (0..requests).map(|i| request(i, n)).collect() }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn put(dir: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join("t.parquet");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn what_is_written_is_read() {
    let dir = folder();
    let path = dir.path().join("deep/er/t.parquet");
    for trace in [sample(1, false, 7, 16, 11), sample(2, true, 4, 8, 9), sample(3, false, 1, 1, 1)] {
        for trace in [trace.clone(), ranks_only(trace.clone()), narrow(trace, 3)] {
            write(&path, &trace).unwrap();
            assert_eq!(read(&path).unwrap(), trace);
        }
    }
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn an_empty_trace_is_one() {
    let dir = folder();
    let path = dir.path().join("t.parquet");
    let mut trace = sample(1, false, 3, 4, 1);
    trace.requests.clear();
    write(&path, &trace).unwrap();
    assert_eq!(read(&path).unwrap(), trace);
    assert_eq!(info(&path).unwrap().bytes_per_position, None);
}

#[test]
fn a_rank_trace_holds_no_token() {
    let trace = ranks_only(sample(4, false, 7, 16, 9));
    assert!(trace.requests.iter().all(|r| r.tokens.is_empty() && r.positions.iter().all(|p| p.ids.is_empty())));
    let bytes = super::write::encode(&trace).unwrap();
    let full = super::write::encode(&sample(4, false, 7, 16, 9)).unwrap();
    assert!(bytes.len() < full.len());
}

/// A few hundred bytes a position at 16 ranks and 7 levels.
#[test]
fn a_rank_trace_is_small() {
    let trace = ranks_only(sample(5, false, 7, 16, 60));
    let info = Info::of(&trace, super::write::encode(&trace).unwrap().len() as u64);
    let per = info.bytes_per_position.unwrap();
    assert!(per < 400.0, "{per} bytes a position");
}

#[test]
fn contradictions_are_not_written() {
    let dir = folder();
    let path = dir.path().join("t.parquet");
    let mut trace = sample(6, false, 3, 4, 5);
    trace.requests[4].positions[0].truth[0] = Some(99);
    let error = write(&path, &trace).unwrap_err().to_string();
    assert!(error.contains("t.parquet") && error.contains("true rank 99"), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_missing_file_is_named() {
    let error = read(std::path::Path::new("no/such.parquet")).unwrap_err().to_string();
    assert!(error.starts_with("no/such.parquet: "), "{error}");
}

/// Every truncation and every altered byte is found, by the file's own checksum.
#[test]
fn damage_is_found() {
    let dir = folder();
    let good = super::write::encode(&sample(7, false, 3, 4, 6)).unwrap();
    let fails = |bytes: &[u8]| {
        let error = read(&put(&dir, bytes)).unwrap_err().to_string();
        assert!(error.contains("t.parquet"), "{error}");
    };
    for length in (0..good.len()).step_by(7) {
        fails(&good[..length]);
    }
    for at in (0..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        // The first byte of the seal's name takes the seal away: what is left is a good file of some other writer.
        if (4..12).contains(&at) {
            continue;
        }
        fails(&bad);
    }
    // Negative control: the same file is read.
    assert!(read(&put(&dir, &good)).is_ok());
}

#[test]
fn other_kinds_of_files_are_named() {
    let dir = folder();
    for bytes in [&b""[..], b"PAR1", b"PAR1PAR1", b"{\"a\": 1}", b"PAR1\xff\xff\xff\xffPAR1", &[0; 4096]] {
        let error = read(&put(&dir, bytes)).unwrap_err().to_string();
        assert!(error.contains("t.parquet: is no Parquet file") || error.contains("its footer claims"), "{error}");
    }
}

#[test]
fn another_version_is_refused() {
    let dir = folder();
    let bytes = unsealed(&sample(8, false, 3, 4, 3));
    let at = bytes.windows(VERSION_KEY.len()).rposition(|w| w == VERSION_KEY.as_bytes()).unwrap() + VERSION_KEY.len();
    let mut other = bytes.clone();
    let digit = (at..at + 8).find(|&i| other[i] == b'1').unwrap();
    other[digit] = b'9';
    let error = read(&put(&dir, &other)).unwrap_err().to_string();
    assert!(error.contains("version 9"), "{error}");
    assert!(read(&put(&dir, &bytes)).is_ok());
}

/// The file as another writer would leave it: no seal.
fn unsealed(trace: &Trace) -> Vec<u8> {
    let mut bytes = super::write::encode(trace).unwrap();
    bytes[4] = b'_';
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Arbitrary bytes: an error.
    #[test]
    fn arbitrary_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600), wrap in any::<bool>()) {
        let dir = folder();
        let mut file = bytes;
        if wrap {
            let footer = (file.len() as u32 / 2).to_le_bytes();
            file = [&b"PAR1"[..], &file, &footer, b"PAR1"].concat();
        }
        prop_assert!(read(&put(&dir, &file)).is_err());
    }

    /// A foreign file with altered bytes, where no checksum helps: read or refused, never a panic that leaves `read`.
    #[test]
    fn altered_foreign_files_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let dir = folder();
        let mut bytes = unsealed(&sample(9, true, 4, 5, 4));
        for (at, value) in edits {
            let at = at.index(bytes.len() - 28) + 28;
            bytes[at] = value;
        }
        let _ = read(&put(&dir, &bytes));
    }
}
