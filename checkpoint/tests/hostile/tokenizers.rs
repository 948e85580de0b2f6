//! Damaged tokenizers and chat templates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use treeline_checkpoint::{ChatTemplate, Message, Prompt, Tokenizer};

use super::alloc::{assert_small, corrupt, damage, value};

fn sound() -> Value {
    let vocab: serde_json::Map<String, Value> =
        ["a", "b", "c", "ab", "Ġ", "Ġa"].iter().enumerate().map(|(i, t)| ((*t).to_owned(), json!(i))).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 6, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\s+|[abc]+"}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": "a", "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": [["a", "b"], ["Ġ", "a"]]}
    })
}

/// Reads a tokenizer and, if it is accepted, uses it.
fn read(bytes: &[u8]) {
    if let Ok(t) = Tokenizer::from_bytes(bytes, Path::new("tokenizer.json")) {
        assert!(t.size() > 0);
        if let Ok(ids) = t.encode("ab c <e> é", true) {
            let _ = t.decode(&ids, false);
        }
        let mut stream = t.stream(true);
        for id in [0, 6, 4, 1, 99] {
            let _ = stream.push(id);
        }
        let _ = stream.finish();
    }
    assert_small();
}

#[test]
fn the_sound_tokenizer_is_sound() {
    let t = Tokenizer::from_bytes(sound().to_string().as_bytes(), Path::new("t")).unwrap();
    assert_eq!(t.encode("ab a<e>", false).unwrap(), [3, 4, 0, 6]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Tokenizer::from_bytes(&bytes, Path::new("tokenizer.json")).is_err());
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tokenizer.json"), sound().to_string()).unwrap();
        fs::write(dir.path().join("tokenizer_config.json"), &bytes).unwrap();
        let empty = bytes.trim_ascii() == b"{}";
        prop_assert!(Tokenizer::open(dir.path()).is_err() || empty);
        assert_small();
    }

    #[test]
    fn a_tokenizer_with_other_values(changes in prop::collection::vec((any::<usize>(), value()), 1..3)) {
        let mut json = sound();
        damage(&mut json, &changes);
        read(json.to_string().as_bytes());
    }

    #[test]
    fn a_tokenizer_with_other_bytes(
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<usize>()),
    ) {
        let mut bytes = sound().to_string().into_bytes();
        corrupt(&mut bytes, &flips, cut);
        read(&bytes);
    }

    #[test]
    fn a_template_of_anything(
        source in "([ -~é]|\\{\\{|\\}\\}|\\{%|%\\}|messages|for x in |endfor|if |endif| == |'a'|\\[-1\\]){0,20}",
        variable in value(),
    ) {
        let path = Path::new("chat_template.jinja");
        if let Ok(t) = ChatTemplate::new(source, path, BTreeMap::new()) {
            let variables = [("x".to_owned(), variable), ("date_string".to_owned(), json!("today"))].into();
            let _ = t.render(&[Message::new("user", "hi")], &Prompt { add_generation_prompt: true, thinking: Some(true), variables });
        }
        assert_small();
    }
}

#[test]
fn deep_nesting() {
    let mut json = sound().to_string();
    let at = json.find("{\"type\":\"NFC\"}").unwrap();
    json.replace_range(at..at + 14, &"{\"type\":\"Sequence\",\"normalizers\":[".repeat(50_000));
    read(json.as_bytes());
    let refused = |source: String| ChatTemplate::new(source, Path::new("t"), BTreeMap::new()).is_err();
    assert!(refused("{% if 1 %}".repeat(50_000)));
    for open in ["(", "[", "-", "not ", "a+", "a.b", "{1:", "a if b else ", "f("] {
        assert!(refused(format!("{{{{ {}", open.repeat(50_000))), "{open}");
        // Inside the limit of one tag, the parser's own stack must do.
        let _ = refused(format!("{{{{ {}1 }}}}", open.repeat(4_000 / open.len())));
    }
    assert!(
        !refused(format!("{{{{ '{}' }}}}", "text with }} and \\' in it ".repeat(5_000))),
        "a long text is no long tag"
    );
}
