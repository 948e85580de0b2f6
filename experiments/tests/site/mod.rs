//! A folder with tiny models, a tokenizer and prompts, as a user has them.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A folder with a target (Kimi's architecture, vocabulary of 64), a DFlash drafter, a small llama, and prompts.
pub struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    /// Everything in place.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-cpu/tests/fixtures");
        for (from, to) in [("kimi_k2", "target"), ("dflash_kimi", "dflash"), ("llama", "llama")] {
            std::fs::create_dir(dir.path().join(to)).unwrap();
            for file in ["config.json", "model.safetensors"] {
                std::fs::copy(fixtures.join(from).join(file), dir.path().join(to).join(file)).unwrap();
            }
        }
        let vocab: serde_json::Map<String, Value> = (0..62).map(|i| (format!("t{i}"), json!(i))).collect();
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
            "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "t0" },
        });
        std::fs::write(dir.path().join("target/tokenizer.json"), tokenizer.to_string()).unwrap();
        let text =
            |i: usize| (0..4 + i * 3).map(|t| format!("t{}", (t * 11 + i * 5) % 62)).collect::<Vec<_>>().join(" ");
        let line = |i: usize| json!({ "id": format!("p/{i}"), "domain": (["code", "prose"][i % 2]), "text": text(i) });
        let lines: String = (0..9).map(|i| format!("{}\n", line(i))).collect();
        std::fs::write(dir.path().join("prompts.jsonl"), lines).unwrap();
        Self { dir }
    }

    /// A file or folder of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
