//! The importer on the real package where it is at hand, and on damaged files everywhere.
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]
use super::*;
use treeline_sim::optable::SHIPPED;

/// The package: a wheel or folder named by this variable.
const AT: &str = "TREELINE_OPTABLES_PACKAGE";

#[test]
fn importing_the_package_makes_the_shipped_files_byte_for_byte() {
    let Some(at) = std::env::var_os(AT).filter(|at| !at.is_empty()) else {
        println!("skipped: {AT} names no wheel of {PACKAGE} {VERSION}");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&mut Package::open(Path::new(&at)).unwrap(), folder.path()).unwrap();
    assert!(imported.as_shipped);
    for (name, shipped) in FILES.iter().zip(SHIPPED).chain([(&"NOTICE", NOTICE)]) {
        let made = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let differs = made.lines().zip(shipped.lines()).position(|(a, b)| a != b);
        assert_eq!(differs.map(|l| l + 1), None, "{name}: the first line that differs");
        assert_eq!(made, shipped, "{name}");
    }
}

/// The error of opening `path`.
fn refused(path: &Path) -> String {
    Package::open(path).expect_err("no package").to_string()
}

#[test]
fn what_is_no_package_says_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let how = "pip download --no-deps aiconfigurator-core==0.12.0";
    assert!(refused(&dir.path().join("missing")).contains("missing"));
    let error = refused(dir.path());
    assert!(error.contains("holds no aiconfigurator_core/systems/data") && error.contains(how), "{error}");
    let file = dir.path().join("x.whl");
    std::fs::write(&file, "not a zip").unwrap();
    let error = refused(&file);
    assert!(error.contains("is no wheel") && error.contains(how), "{error}");
    std::fs::create_dir_all(dir.path().join("aiconfigurator_core/systems/data/h200_sxm")).unwrap();
    std::fs::create_dir(dir.path().join("aiconfigurator_core-0.11.3.dist-info")).unwrap();
    let error = refused(dir.path());
    assert!(error.contains("is version 0.11.3") && error.contains("0.12.0"), "{error}");
}

#[test]
fn a_package_without_a_file_names_it_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("h200_sxm")).unwrap();
    let out = dir.path().join("out");
    let error = import(&mut Package::open(dir.path()).unwrap(), &out).unwrap_err().to_string();
    assert!(error.contains("moe_perf.parquet"), "{error}");
    assert!(!out.exists());
}

/// A file with a text, a whole number and a time in each row.
fn parquet(rows: usize) -> Vec<u8> {
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    let schema = "message t { OPTIONAL BINARY kernel (UTF8); OPTIONAL INT64 rows; OPTIONAL DOUBLE latency; }";
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let properties = std::sync::Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    let levels = vec![1; rows];
    let mut column = group.next_column().unwrap().unwrap();
    let kernels: Vec<ByteArray> = (0..rows).map(|i| ByteArray::from(if i % 2 == 0 { "even" } else { "odd" })).collect();
    column.typed::<ByteArrayType>().write_batch(&kernels, Some(&levels), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let numbers: Vec<i64> = (0..rows as i64).collect();
    column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let times: Vec<f64> = (0..rows).map(|i| 0.5 + i as f64).collect();
    column.typed::<DoubleType>().write_batch(&times, Some(&levels), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    bytes
}

#[test]
fn columns_come_back_as_they_were_written() {
    let table = table::Table::open("t", parquet(9000)).unwrap();
    assert_eq!(table.rows(), 9000);
    let (kernels, rows, times) =
        (table.texts("kernel").unwrap(), table.numbers("rows").unwrap(), table.floats("latency").unwrap());
    for i in 0..9000 {
        assert_eq!(
            (kernels.get(i), rows[i], times[i]),
            (if i % 2 == 0 { "even" } else { "odd" }, i as i64, 0.5 + i as f64)
        );
    }
    let error = table.texts("dtype").err().unwrap().to_string();
    assert!(error.contains("t: has no column `dtype`"), "{error}");
    let error = table.floats("rows").unwrap_err().to_string();
    assert!(error.contains("column `rows` is no plain DOUBLE"), "{error}");
}

proptest::proptest! {
    /// Whatever happens to a file, it is read or refused.
    #[test]
    fn damage_never_panics(at in proptest::prelude::any::<proptest::sample::Index>(), by in 0..=255u8, cut in 0..3usize) {
        let mut bytes = parquet(300);
        let i = at.index(bytes.len());
        bytes[i] = by;
        if cut == 0 {
            bytes.truncate(i);
        }
        if let Ok(table) = table::Table::open("t", bytes) {
            let _ = (table.texts("kernel"), table.numbers("rows"), table.floats("latency"));
        }
    }
}
