//! Packed INT4 against brute force, and every way in which its three tensors can disagree.

use std::fs;

use half::bf16;
use proptest::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::{TensorView as Out, serialize};
use tempfile::{TempDir, tempdir};
use treeline_checkpoint::{Linear, PackedInt4, TargetConfig, Weights};

/// compressed-tensors' packing, word by word: nibble j of a word, lowest first, is element 8·word + j, stored as q + 8.
fn pack(values: &[i8]) -> Vec<u8> {
    let words = values.chunks(8).map(|eight| {
        let nibbles = eight.iter().enumerate().map(|(j, q)| ((i32::from(*q) + 8) as u32) << (4 * j));
        nibbles.sum::<u32>() as i32
    });
    words.flat_map(i32::to_le_bytes).collect()
}

type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn module(out: usize, inp: usize) -> Vec<Tensor> {
    let values: Vec<i8> = (0..out * inp).map(|i| ((i * 7 + i / 32) % 16) as i8 - 8).collect();
    let scales = (0..out * inp / 32).flat_map(|i| bf16::from_f32(0.01 * (i + 1) as f32).to_le_bytes()).collect();
    let shape = [out as i32, inp as i32].iter().flat_map(|n| n.to_le_bytes()).collect();
    vec![
        ("e.weight_packed", Dtype::I32, vec![out, inp / 8], pack(&values)),
        ("e.weight_scale", Dtype::BF16, vec![out, inp / 32], scales),
        ("e.weight_shape", Dtype::I32, vec![2], shape),
    ]
}

fn write(tensors: &[Tensor]) -> (TempDir, Weights) {
    let dir = tempdir().unwrap();
    let views = tensors.iter().map(|(n, d, s, b)| (n.to_string(), Out::new(*d, s.clone(), b).unwrap()));
    fs::write(dir.path().join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
    let weights = Weights::open(dir.path()).unwrap();
    (dir, weights)
}

#[test]
fn a_stored_module_equals_brute_force() {
    let (_dir, weights) = write(&module(5, 96));
    let packed = PackedInt4::read(&weights, "e", 5, 96).unwrap();
    let mut got = vec![0.0; 5 * 96];
    packed.dequantise(&mut got).unwrap();
    for (i, value) in got.iter().enumerate() {
        let q = ((i * 7 + i / 32) % 16) as f32 - 8.0;
        assert_eq!(*value, q * bf16::from_f32(0.01 * (i / 32 + 1) as f32).to_f32(), "element {i}");
    }
    assert!(packed.dequantise(&mut got[1..]).unwrap_err().to_string().contains("does not fit into 479"));
}

#[test]
fn each_disagreement_names_its_tensor() {
    let refuse = |change: &dyn Fn(&mut Vec<Tensor>), says: &str| {
        let mut tensors = module(4, 64);
        change(&mut tensors);
        let (_dir, weights) = write(&tensors);
        let error = PackedInt4::read(&weights, "e", 4, 64).unwrap_err().to_string();
        assert!(error.contains("model.safetensors") || error.contains("missing"), "{error}");
        assert!(error.contains(says), "no {says:?} in: {error}");
    };
    refuse(&|t| drop(t.remove(0)), "`e.weight_packed`: missing");
    refuse(&|t| drop(t.remove(1)), "`e.weight_scale`: missing");
    refuse(&|t| drop(t.remove(2)), "`e.weight_shape`: missing");
    refuse(&|t| t[0].2 = vec![8, 4], "`e.weight_packed`: has shape [8, 4]");
    refuse(&|t| t[0].1 = Dtype::U32, "`e.weight_packed`: is U32, but I32");
    refuse(&|t| t[1].1 = Dtype::F16, "`e.weight_scale`: is F16, but BF16");
    refuse(&|t| t[1].2 = vec![2, 4], "`e.weight_scale`: has shape [2, 4]");
    refuse(&|t| t[2].3[0] = 5, "`e.weight_shape`: says [5, 64], but the config asks for [4, 64]");
    refuse(&|t| t[2].1 = Dtype::F32, "`e.weight_shape`: is F32");
    refuse(&|t| t.push(("e.weight_zero_point", Dtype::I8, vec![1], vec![0])), "`e.weight_zero_point`: symmetric INT4");
    refuse(&|t| t.push(("e.weight_g_idx", Dtype::I8, vec![1], vec![0])), "`e.weight_g_idx`: symmetric INT4");
    let (dir, weights) = write(&module(4, 64));
    for inp in [0, 16, 33, 63] {
        let error = PackedInt4::read(&weights, "e", 4, inp).unwrap_err().to_string();
        assert!(error.contains("no whole number of groups") && error.contains(dir.path().to_str().unwrap()), "{error}");
    }
    let mut wide = module(4, 64);
    wide[2] = ("e.weight_shape", Dtype::I64, vec![2], [4i64, 64].iter().flat_map(|n| n.to_le_bytes()).collect());
    assert!(PackedInt4::read(&write(&wide).1, "e", 4, 64).is_ok(), "some exporters write the shape as I64");
    assert!(PackedInt4::new(2, 32, &[0; 31], &[0; 4]).is_err() && PackedInt4::new(usize::MAX, 32, &[], &[]).is_err());
}

#[test]
fn the_config_decides_which_form_a_module_has() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs/kimi_k2_thinking.json");
    let config = TargetConfig::from_json(&fs::read_to_string(&path).unwrap(), &path).unwrap();
    let q = config.quantization.as_ref();
    let mut tensors = module(4, 64);
    for t in &mut tensors {
        t.0 = Box::leak(t.0.replace("e.", "m.experts.0.up_proj.").into_boxed_str());
    }
    tensors.push(("self_attn.o_proj.weight", Dtype::F32, vec![1, 1], vec![0; 4]));
    tensors.push(("m.experts.1.up_proj.weight", Dtype::F32, vec![1, 1], vec![0; 4]));
    tensors.push(("shared_experts.i.weight", Dtype::I32, vec![1, 1], vec![0; 4]));
    let (_dir, weights) = write(&tensors);
    let packed = weights.linear("m.experts.0.up_proj", 4, 64, q).unwrap();
    assert!(matches!(packed, Linear::Int4(_)) && packed.shape() == [4, 64]);
    assert_eq!(packed.to_f32().unwrap()[1], -bf16::from_f32(0.01).to_f32());
    assert!(matches!(weights.linear("self_attn.o_proj", 1, 1, q).unwrap(), Linear::Dense(_)));
    let says = |error: treeline_checkpoint::Error, part: &str| assert!(error.to_string().contains(part), "{error}");
    let dense = weights.linear("m.experts.1.up_proj", 1, 1, q).unwrap_err();
    says(dense, "`m.experts.1.up_proj.weight`: the config says that `m.experts.1.up_proj.weight_packed` is stored");
    let unquantised = weights.linear("m.experts.0.up_proj", 4, 64, None).unwrap_err();
    says(unquantised, "`m.experts.0.up_proj.weight_packed`: the config says");
    says(weights.linear("m.experts.2.up_proj", 1, 32, q).unwrap_err(), "`m.experts.2.up_proj.weight_shape`: missing");
    says(weights.linear("shared_experts.i", 1, 1, q).unwrap_err(), "`shared_experts.i.weight`: is I32");
}

proptest! {
    #[test]
    fn any_bytes_dequantise_as_the_definition_says(
        (out, groups, packed, scales) in (1usize..5, 1usize..5).prop_flat_map(|(o, g)| (
            Just(o),
            Just(g),
            prop::collection::vec(any::<u8>(), o * g * 16),
            prop::collection::vec(any::<u16>(), o * g),
        ))
    ) {
        let bytes: Vec<u8> = scales.iter().flat_map(|s| s.to_le_bytes()).collect();
        let mut got = vec![0.0f32; out * groups * 32];
        PackedInt4::new(out, groups * 32, &packed, &bytes).unwrap().dequantise(&mut got).unwrap();
        for row in 0..out {
            for col in 0..groups * 32 {
                // By words, not by bytes as the library reads them.
                let at = (row * groups * 32 + col) / 8 * 4;
                let word = u32::from_le_bytes(packed[at..at + 4].try_into().unwrap());
                let q = ((word >> (4 * (col % 8))) & 15) as i32 - 8;
                let scale = bf16::from_bits(scales[row * groups + col / 32]).to_f32();
                let (want, have) = (q as f32 * scale, got[row * groups * 32 + col]);
                prop_assert!(want.to_bits() == have.to_bits() || (want.is_nan() && have.is_nan()));
            }
        }
    }
}
