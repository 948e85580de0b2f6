//! Damaged `config.json` and `generation_config.json`.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;
use treeline_checkpoint::{DflashConfig, TargetConfig};

use super::alloc::{assert_small, corrupt, damage, value};

const NAMES: [&str; 8] = [
    "kimi_k2_thinking",
    "kimi_k25_transformers5",
    "deepseek_v3",
    "qwen3_windows",
    "qwen3_30b_a3b",
    "llama_31_8b",
    "dflash_kimi_k26",
    "dflash_qwen3_8b_b16",
];

fn text(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs");
    fs::read_to_string(folder.join(format!("{name}.json"))).unwrap()
}

/// Reads a text as both kinds of config; what is accepted must be usable.
fn read(text: &str) {
    let path = Path::new("config.json");
    if let Ok(c) = TargetConfig::from_json(text, path) {
        assert!(!c.layers.is_empty() && c.layers.len() <= 4096 && c.hidden > 0 && c.vocab > 0);
        assert!(c.rope.inv_freq().iter().all(|f| f.is_finite()) && c.softmax_scale().is_finite());
        assert!(c.eos.iter().all(|id| (*id as usize) < c.vocab));
    }
    if let Ok(d) = DflashConfig::from_json(text, path) {
        assert!(d.block >= 2 && !d.target_layers.is_empty() && (d.mask_token as usize) < d.vocab);
        assert!(d.rope.attention_factor.value.is_finite() && !d.to_string().is_empty());
    }
    assert_small();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["config.json", "generation_config.json"] {
            fs::write(dir.path().join(name), &bytes).unwrap();
        }
        prop_assert!(TargetConfig::from_dir(dir.path()).is_err() && DflashConfig::from_dir(dir.path()).is_err());
        fs::write(dir.path().join("config.json"), text("qwen3_8b")).unwrap();
        let error = TargetConfig::from_dir(dir.path()).map(|c| c.eos);
        prop_assert!(error.is_err() || bytes.trim_ascii() == b"{}", "{error:?}");
        assert_small();
    }

    #[test]
    fn any_json(value in value()) {
        read(&value.to_string());
    }

    #[test]
    fn a_config_with_other_values(
        name in prop::sample::select(&NAMES[..]),
        changes in prop::collection::vec((any::<usize>(), value()), 1..4),
    ) {
        let mut config: Value = serde_json::from_str(&text(name)).unwrap();
        damage(&mut config, &changes);
        read(&config.to_string());
    }

    #[test]
    fn a_config_with_other_bytes(
        name in prop::sample::select(&NAMES[..]),
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<usize>()),
    ) {
        let mut bytes = text(name).into_bytes();
        corrupt(&mut bytes, &flips, cut);
        read(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn deep_nesting_and_huge_files() {
    for open in ["[", "{\"a\":", "{\"text_config\":"] {
        read(&open.repeat(200_000));
        read(&format!("{{\"model_type\":\"kimi_k25\",\"text_config\":{}", open.repeat(200_000)));
    }
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("config.json")).unwrap();
    // A sparse file: it has this length without using the disk.
    file.set_len(1 << 40).unwrap();
    let error = TargetConfig::from_dir(dir.path()).unwrap_err().to_string();
    assert!(error.contains("config.json: 1099511627776 bytes, but a file of this kind may have at most"), "{error}");
    assert_small();
}
