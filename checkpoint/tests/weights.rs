//! Mapped safetensors: what is stored is read exactly; what is damaged, missing or surplus is refused by file and tensor.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{TensorView as Out, serialize};
use tempfile::{TempDir, tempdir};
use treeline_checkpoint::{Thoroughness, Weights, digest};

/// A safetensors file by the reference writer.
fn file(tensors: &[(&str, Dtype, Vec<usize>, Vec<u8>)]) -> Vec<u8> {
    let views = tensors.iter().map(|(n, d, s, b)| (n.to_string(), Out::new(*d, s.clone(), b).unwrap()));
    serialize(views, None).unwrap()
}

/// A file from a header as text, with `data` zero bytes behind it.
fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let dir = tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn single(bytes: Vec<u8>) -> TempDir {
    folder(&[("model.safetensors", bytes)])
}

/// The folder must be refused, with all of `says` in the message.
fn refuse(dir: &TempDir, says: &[&str]) {
    let error = Weights::open(dir.path()).err().unwrap_or_else(|| panic!("accepted: {says:?}")).to_string();
    assert!(error.contains(dir.path().to_str().unwrap()), "no path in: {error}");
    for part in says {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn small() -> Vec<u8> {
    let values: Vec<f32> = (0..6).map(|i| i as f32 * 0.37 - 1.0).collect();
    let b: Vec<u8> = values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
    let h: Vec<u8> = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
    file(&[
        ("a.weight", Dtype::F32, vec![2, 3], f32s(&values)),
        ("b.weight", Dtype::BF16, vec![3, 2], b),
        ("c.bias", Dtype::F16, vec![6], h),
        ("d.id", Dtype::I64, vec![1], 7i64.to_le_bytes().to_vec()),
        ("e.none", Dtype::F32, vec![0, 4], vec![]),
    ])
}

#[test]
fn values_come_back_exactly() {
    let dir = single(small());
    let w = Weights::open(dir.path()).unwrap();
    assert_eq!(w.names().collect::<Vec<_>>(), ["a.weight", "b.weight", "c.bias", "d.id", "e.none"]);
    assert_eq!(w.total_bytes(), 24 + 12 + 12 + 8);
    let values: Vec<f32> = (0..6).map(|i| i as f32 * 0.37 - 1.0).collect();
    assert_eq!(w.f32("a.weight", &[2, 3]).unwrap(), values);
    let rounded: Vec<f32> = values.iter().map(|v| bf16::from_f32(*v).to_f32()).collect();
    assert_eq!(w.f32("b.weight", &[3, 2]).unwrap(), rounded);
    let rounded: Vec<f32> = values.iter().map(|v| f16::from_f32(*v).to_f32()).collect();
    assert_eq!(w.f32("c.bias", &[6]).unwrap(), rounded);
    assert!(w.f32("e.none", &[0, 4]).unwrap().is_empty() && w.any("e.none").unwrap().is_empty());
    let mut short = [0.0; 5];
    assert!(w.any("c.bias").unwrap().read_f32(&mut short).unwrap_err().to_string().contains("does not fit into 5"));
}

#[test]
fn a_tensor_that_does_not_fit_is_named() {
    let dir = single(small());
    let w = Weights::open(dir.path()).unwrap();
    let shard = dir.path().join("model.safetensors").display().to_string();
    for (error, says) in [
        (w.f32("a.weight", &[3, 2]).unwrap_err(), "`a.weight`: has shape [2, 3], but the config asks for [3, 2]"),
        (w.f32("a.weight", &[6]).unwrap_err(), "`a.weight`: has shape [2, 3], but the config asks for [6]"),
        (w.f32("d.id", &[1]).unwrap_err(), "`d.id`: is I64, but BF16, F16 or F32 is needed"),
        (w.linear("a", 2, 4, None).unwrap_err(), "`a.weight`: has shape [2, 3], but the config asks for [2, 4]"),
    ] {
        let error = error.to_string();
        assert!(error.contains(&shard) && error.contains(says), "{error}");
    }
    let error = w.f32("x.weight", &[1]).unwrap_err().to_string();
    assert!(error.contains("`x.weight`: missing: no shard") && error.contains(dir.path().to_str().unwrap()), "{error}");
}

#[test]
fn surplus_tensors_are_refused_by_name() {
    let dir = single(small());
    let w = Weights::open(dir.path()).unwrap();
    let used: BTreeSet<&str> = ["a.weight", "c.bias"].into();
    assert_eq!(w.unused(|n| used.contains(n), &["e."]), ["b.weight", "d.id"]);
    let error = w.refuse_unused(|n| used.contains(n), &["e."]).unwrap_err().to_string();
    assert!(error.contains("model.safetensors: tensor `b.weight`") && error.contains("(2 such tensors)"), "{error}");
    w.refuse_unused(|n| used.contains(n), &["b", "d", "e"]).unwrap();
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = small();
    for length in 0..whole.len() {
        let dir = single(whole[..length].to_vec());
        refuse(&dir, &["model.safetensors", "truncated"]);
    }
    // Cut inside the data, the message names a tensor that is cut.
    refuse(&single(whole[..whole.len() - 1].to_vec()), &["tensor `", "it is truncated"]);
    let mut longer = whole;
    longer.push(0);
    refuse(&single(longer), &["1 bytes follow the last tensor"]);
}

#[test]
fn a_header_is_not_believed() {
    let t =
        |offsets: &str, shape: &str| format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
    let mut huge = raw("{}", 0);
    huge[..8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    refuse(&single(huge.clone()), &["claims 1152921504606846976 bytes"]);
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    refuse(&single(huge.clone()), &["the format allows 100000000"]);
    huge[..8].copy_from_slice(&99_999_999u64.to_le_bytes());
    refuse(&single(huge), &["99999999 bytes, but 2 follow"]);
    for (header, data, says) in [
        ("", 0, "header: EOF"),
        ("[]", 0, "header:"),
        ("{\"t\":1}", 0, "header:"),
        (r#"{"t":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}"#, 4, "F31"),
        (r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}"#, 4, "unknown field `x`"),
        (r#"{"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4, "tensor `t`"),
        (&t("[0,4]", "[2]"), 4, "tensor `t`: F32 [2] takes 8 bytes, but its offsets span 4"),
        (&t("[4,0]", "[0]"), 4, "run backwards"),
        (&t("[0,18446744073709551615]", "[1]"), 4, "overflow"),
        (&t("[0,4611686018427387904]", "[1152921504606846976]"), 4, "truncated"),
        (&t("[0,4]", "[4611686018427387904,4611686018427387904]"), 4, "overflows"),
        (&t("[4,8]", "[1]"), 8, "leaves a gap"),
        (
            &t("[0,4]", "[1]").replace("{\"t\"", "{\"__metadata__\":{},\"__metadata__\":{},\"t\""),
            4,
            "__metadata__` twice",
        ),
    ] {
        refuse(&single(raw(header, data)), &["model.safetensors", says]);
    }
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
        )
    };
    refuse(&single(raw(&two("[0,4]", "[2,6]"), 6)), &["tensor `b`", "overlaps"]);
    refuse(&single(raw(&two("[0,4]", "[0,4]"), 4)), &["tensor `b`", "overlaps"]);
    refuse(&single(raw(&two("[0,4]", "[5,9]"), 9)), &["tensor `b`", "leaves a gap"]);
    refuse(&single(raw(&two("[0,4]", "[4,8]").replace("\"b\"", "\"a\""), 8)), &["tensor `a`", "twice"]);
    assert!(Weights::open(single(raw(&two("[4,8]", "[0,4]"), 8)).path()).is_ok(), "order in the header is free");
    refuse(&single(raw(&format!("{{\"t\":{}", "[".repeat(100_000)), 0)), &["header:"]);
    refuse(&single(raw(&format!("{{\"__metadata__\":{}", "[".repeat(100_000)), 0)), &["header:"]);
}

fn shard(names: &[&str]) -> Vec<u8> {
    file(&names.iter().map(|n| (*n, Dtype::F32, vec![1], f32s(&[n.len() as f32]))).collect::<Vec<_>>())
}

fn sharded(map: &str) -> TempDir {
    folder(&[
        ("m-1.safetensors", shard(&["a", "bb"])),
        ("m-2.safetensors", shard(&["ccc"])),
        (
            "model.safetensors.index.json",
            format!(r#"{{"metadata":{{"total_size":12}},"weight_map":{map}}}"#).into_bytes(),
        ),
    ])
}

#[test]
fn shards() {
    let dir = sharded(r#"{"a":"m-1.safetensors","bb":"m-1.safetensors","ccc":"m-2.safetensors"}"#);
    let w = Weights::open(dir.path()).unwrap();
    assert_eq!(w.f32("ccc", &[1]).unwrap(), [3.0]);
    assert!(w.any("bb").unwrap().path.ends_with("m-1.safetensors"));
    drop(w);
    fs::write(dir.path().join("m-2.safetensors"), shard(&["ccc", "a"])).unwrap();
    refuse(&dir, &["m-2.safetensors: tensor `a`: is also in", "m-1.safetensors"]);
    fs::remove_file(dir.path().join("m-2.safetensors")).unwrap();
    refuse(&dir, &["m-2.safetensors", "No such file"]);
}

#[test]
fn an_index_that_disagrees_is_refused() {
    for (map, says) in [
        (r#"{"a":"m-1.safetensors","bb":"m-2.safetensors"}"#, "m-2.safetensors: tensor `bb`: is not in this shard"),
        (r#"{"a":"m-1.safetensors","bb":"m-1.safetensors","x":"m-2.safetensors"}"#, "tensor `x`: is not in this shard"),
        (
            r#"{"a":"m-1.safetensors","ccc":"m-2.safetensors"}"#,
            "m-1.safetensors: tensor `bb`: is in this shard, but not in",
        ),
        (r#"{"a":"../m-1.safetensors"}"#, "tensor `a`: its shard must be the name of a file"),
        (r#"{"a":"/etc/passwd"}"#, "tensor `a`: its shard must be the name of a file"),
        (r#"{"a":".."}"#, "tensor `a`: its shard must be the name of a file"),
        (r#"{"a":""}"#, "tensor `a`: its shard must be the name of a file"),
        (r#"{"a":1}"#, "tensor `a`: its shard must be the name of a file"),
        ("{}", "`weight_map`: names 0 shards"),
        ("[]", "`weight_map`: missing"),
    ] {
        refuse(&sharded(map), &[says]);
    }
    refuse(&folder(&[("model.safetensors.index.json", b"{".to_vec())]), &["index.json: not valid JSON"]);
    refuse(&folder(&[("pytorch_model.bin", vec![0])]), &["neither model.safetensors nor"]);
}

#[test]
fn the_digest_names_the_weights() {
    let dir = single(small());
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    let of = |dir: &Path, how| digest(dir, how).unwrap();
    let (full, quick) = (of(dir.path(), Thoroughness::Full), of(dir.path(), Thoroughness::Headers));
    assert_eq!(full.files.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["config.json", "model.safetensors"]);
    // SHA-256 of the two bytes "{}".
    assert_eq!(full.files[0].sha256, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    assert!(full.to_string().starts_with("sha256:") && quick.to_string().starts_with("headers-sha256:"));
    fs::write(dir.path().join("README.md"), "card").unwrap();
    assert_eq!(of(dir.path(), Thoroughness::Full), full, "a model card is no part of the model");
    let mut changed = small();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(dir.path().join("model.safetensors"), changed).unwrap();
    assert_ne!(of(dir.path(), Thoroughness::Full).sha256, full.sha256);
    // Beyond the first MiB, only the thorough digest sees a change.
    let mut long = file(&[("t", Dtype::U8, vec![3 << 20], vec![1; 3 << 20])]);
    fs::write(dir.path().join("model.safetensors"), &long).unwrap();
    let before = (of(dir.path(), Thoroughness::Full), of(dir.path(), Thoroughness::Headers));
    *long.last_mut().unwrap() = 2;
    fs::write(dir.path().join("model.safetensors"), &long).unwrap();
    let after = (of(dir.path(), Thoroughness::Full), of(dir.path(), Thoroughness::Headers));
    assert!(before.0 != after.0 && before.1 == after.1);
}

/// A named pipe in place of a shard would wait for ever, a device has no end: neither is opened.
#[cfg(unix)]
#[test]
fn only_ordinary_files_are_opened() {
    let device = folder(&[]);
    std::os::unix::fs::symlink("/dev/zero", device.path().join("model.safetensors")).unwrap();
    refuse(&device, &["model.safetensors", "is not an ordinary file"]);
    let nested = folder(&[]);
    fs::create_dir(nested.path().join("model.safetensors.index.json")).unwrap();
    refuse(&nested, &["model.safetensors.index.json", "is not an ordinary file"]);
    let pipe = folder(&[]);
    let config = pipe.path().join("config.json");
    assert!(std::process::Command::new("mkfifo").arg(&config).status().unwrap().success());
    let error = treeline_checkpoint::TargetConfig::from_dir(pipe.path()).unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("is not an ordinary file"), "{error}");
}
