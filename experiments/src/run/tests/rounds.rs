//! `rounds.parquet`: what is kept, and under which names.

use super::*;
use parquet::file::reader::{FileReader as _, SerializedFileReader};

#[test]
fn rounds_are_recorded_as_asked() {
    let count = |record: Record| {
        let dir = tempfile::tempdir().unwrap();
        let outcome = run_in(dir.path(), &Mock::block(), &Experiment { record, ..experiment() });
        let file = std::fs::File::open(dir.path().join("rounds.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows = reader.metadata().file_metadata().num_rows() as u64;
        assert_eq!(reader.into_iter().count() as u64, rows, "every row can be read");
        (rows, outcome.details.iter().map(|d| d.cell.rounds).sum::<u64>())
    };
    let (all, steps) = count(Record::All);
    assert_eq!(all, steps);
    let (sampled, steps) = count(Record::Sample(4));
    assert!(sampled > steps / 5 && sampled < steps / 3, "{sampled} of {steps}");
    assert_eq!(count(Record::Summary).0, 0);
}

#[test]
fn rounds_have_the_documented_columns() {
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), &Mock::block(), &experiment());
    let reader = SerializedFileReader::new(std::fs::File::open(dir.path().join("rounds.parquet")).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let names: Vec<String> = (0..schema.num_columns()).map(|i| schema.column(i).path().string()).collect();
    assert_eq!(
        names,
        [
            "cell",
            "round",
            "request",
            "step",
            "start",
            "requests",
            "asked",
            "rows",
            "depth",
            "accepted",
            "emitted",
            "expected",
            "waves",
            "experts",
            "graph",
            "prefill_ms",
            "draft_ms",
            "tree_ms",
            "verify_ms",
            "walk_ms",
            "commit_ms",
            "host_ms",
            "power_w",
            "fault"
        ]
    );
}
