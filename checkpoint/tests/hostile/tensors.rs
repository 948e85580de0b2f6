//! Damaged safetensors files and indexes.

use std::fs;

use proptest::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::{TensorView as Out, serialize};
use serde_json::{Value, json};
use treeline_checkpoint::{PackedInt4, Weights};

use super::alloc::{assert_small, corrupt, damage, value};

fn sound() -> Vec<u8> {
    let data: Vec<u8> = (0..=255).collect();
    let view = |d, s: &[usize], n: usize| Out::new(d, s.to_vec(), &data[..n]).unwrap();
    let tensors = [
        ("m.weight_packed", view(Dtype::I32, &[2, 4], 32)),
        ("m.weight_scale", view(Dtype::BF16, &[2, 1], 4)),
        ("m.weight_shape", view(Dtype::I32, &[2], 8)),
        ("n.weight", view(Dtype::F32, &[3, 5], 60)),
    ];
    serialize(tensors, None).unwrap()
}

/// Opens a folder with this one shard and touches every byte that it offers.
fn read(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    if let Ok(w) = Weights::open(dir.path()) {
        assert!(w.total_bytes() < bytes.len() as u64);
        for name in w.names() {
            let view = w.any(name).unwrap();
            let _ = view.to_f32();
            assert!(view.bytes.len() <= bytes.len());
            let _ = w.linear(name.strip_suffix(".weight").unwrap_or(name), 3, 5, None).map(|l| l.to_f32());
        }
        let _ = PackedInt4::read(&w, "m", 2, 32).map(|p| p.dequantise(&mut [0.0; 64]));
    }
    assert_small();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes);
    }

    #[test]
    fn any_header_length(length: u64, json in "\\PC{0,60}", exact: bool) {
        let length = if exact { json.len() as u64 } else { length };
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        read(&bytes);
    }

    #[test]
    fn a_header_with_other_values(changes in prop::collection::vec((any::<usize>(), value()), 1..4), extra in 0usize..9) {
        let file = sound();
        let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        let mut header: Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
        damage(&mut header, &changes);
        let text = header.to_string();
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(&file[8 + length..]);
        bytes.extend(std::iter::repeat_n(0, extra));
        read(&bytes);
    }

    #[test]
    fn a_file_with_other_bytes(
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<usize>()),
    ) {
        let mut bytes = sound();
        corrupt(&mut bytes, &flips, cut);
        read(&bytes);
    }

    #[test]
    fn any_offsets(from: u64, to: u64, shape in prop::collection::vec(any::<u64>(), 0..5), dtype in "F32|U8|F4|I64|BOOL") {
        let header = json!({"t": {"dtype": dtype, "shape": shape, "data_offsets": [from, to]}}).to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + 16, 0);
        read(&bytes);
    }

    #[test]
    fn an_index_of_anything(bytes in prop::collection::vec(any::<u8>(), 0..200), json in value(), which: bool) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.safetensors"), sound()).unwrap();
        let text = if which { bytes } else { json!({"weight_map": json}).to_string().into_bytes() };
        fs::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
        prop_assert!(Weights::open(dir.path()).is_err());
        assert_small();
    }
}
