//! The tokenizer wrapper: ids, end tokens, one id at a time, and files that must be refused.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use treeline_checkpoint::{TargetConfig, Tokenizer};

/// The byte-level alphabet of GPT-2 and its descendants: printable bytes stand for themselves, the others for 256, 257, ….
fn alphabet() -> Vec<char> {
    let printable = |b: u32| (33..=126).contains(&b) || (161..=172).contains(&b) || (174..=255).contains(&b);
    let mut next = 256;
    let letter = |b: u32| {
        if printable(b) {
            return char::from_u32(b).unwrap();
        }
        next += 1;
        char::from_u32(next - 1).unwrap()
    };
    (0..256).map(letter).collect()
}

/// A byte-level BPE of 256 bytes, two merges ("th" 256, "the" 300), and three added tokens: 258 and 259 special, 260 not.
fn tokenizer_json() -> Value {
    let letters = alphabet();
    let mut vocab: serde_json::Map<String, Value> =
        letters.iter().enumerate().map(|(i, c)| (c.to_string(), json!(i))).collect();
    vocab.insert("th".to_owned(), json!(256));
    vocab.insert("the".to_owned(), json!(300));
    let added = |id: u32, content: &str, special: bool| json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": special});
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 1u64 << 60}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "!"},
        "added_tokens": [added(258, "<|end|>", true), added(259, "<|begin|>", true), added(260, "<tool>", false)],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [259], "tokens": ["<|begin|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": ["t h", "th e"]}
    })
}

fn folder(files: &[(&str, String)]) -> TempDir {
    let dir = tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn plain() -> Tokenizer {
    Tokenizer::from_bytes(tokenizer_json().to_string().as_bytes(), Path::new("tokenizer.json")).unwrap()
}

#[test]
fn text_to_ids_and_back() {
    let t = plain();
    assert_eq!((t.size(), t.id("the"), t.token(258).as_deref()), (301, Some(300), Some("<|end|>")));
    // Neither the truncation to 2 nor the padding to 2^60 of the file is applied.
    assert_eq!(t.encode("the th", false).unwrap(), [300, 32, 256]);
    assert_eq!(t.encode("the", true).unwrap(), [259, 300]);
    assert_eq!(t.encode("a<|end|><tool>", false).unwrap(), [97, 258, 260]);
    assert_eq!(t.decode(&[300, 258, 97, 260], false).unwrap(), "the<|end|>a<tool>");
    assert_eq!(t.decode(&[300, 258, 97, 260], true).unwrap(), "thea<tool>");
    // The head of a model has more rows than the tokenizer has tokens.
    assert_eq!(t.decode(&[97, 299, 98, 5000], true).unwrap(), "a\u{FFFD}b\u{FFFD}");
}

#[test]
fn ends_come_from_every_file_that_names_one() {
    let json = tokenizer_json().to_string();
    let dir = folder(&[("tokenizer.json", json.clone())]);
    assert!(Tokenizer::open(dir.path()).unwrap().eos().is_empty());
    fs::write(dir.path().join("config.json"), r#"{"text_config":{"eos_token_id":12}}"#).unwrap();
    fs::write(dir.path().join("generation_config.json"), r#"{"eos_token_id":[300,12]}"#).unwrap();
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"eos_token":{"content":"<|end|>"}}"#).unwrap();
    assert_eq!(Tokenizer::open(dir.path()).unwrap().eos(), [12, 258, 300]);
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"eos_token":"<|gone|>"}"#).unwrap();
    let error = Tokenizer::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer_config.json") && error.contains("<|gone|>"), "{error}");
    let missing = Tokenizer::open(folder(&[("tiktoken.model", String::new())]).path()).unwrap_err().to_string();
    assert!(missing.contains("tokenizer.json") && missing.contains("must be converted"), "{missing}");
}

#[test]
fn an_added_token_has_the_id_that_the_file_says() {
    // The library numbers added tokens itself and does not mind if the file says otherwise.
    let mut json = tokenizer_json();
    json["added_tokens"][1]["id"] = json!(280);
    let error =
        Tokenizer::from_bytes(json.to_string().as_bytes(), Path::new("tokenizer.json")).unwrap_err().to_string();
    assert!(error.starts_with("tokenizer.json: ") && error.contains("`<|begin|>`") && error.contains("280"), "{error}");
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs/deepseek_v3_transformers5.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let check = |config: &Value| plain().check_model(&TargetConfig::from_json(&config.to_string(), &path).unwrap());
    let error = check(&config).unwrap_err().to_string();
    assert!(error.contains("largest id is 300, but `vocab_size`") && error.contains("is 256"), "{error}");
    config["vocab_size"] = json!(301);
    check(&config).unwrap();
}

#[test]
fn a_character_comes_out_when_it_is_whole() {
    let t = plain();
    let ids = t.encode("né 🌲!", false).unwrap();
    assert_eq!(ids.len(), 9);
    let mut stream = t.stream(true);
    let parts: Vec<String> = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
    assert_eq!(parts, ["n", "", "é", " ", "", "", "", "🌲", "!"]);
    assert_eq!(stream.finish().unwrap(), "");
    let mut cut = t.stream(true);
    let parts: Vec<String> = ids[..6].iter().map(|id| cut.push(*id).unwrap()).collect();
    assert_eq!(parts.concat(), "né ");
    assert_eq!(cut.finish().unwrap(), "\u{FFFD}");
}

proptest! {
    #[test]
    fn the_parts_of_a_stream_are_the_whole(ids in prop::collection::vec(0u32..310, 0..40), skip: bool) {
        let t = plain();
        let mut stream = t.stream(skip);
        let mut text = String::new();
        for id in &ids {
            text += &stream.push(*id).unwrap();
        }
        text += &stream.finish().unwrap();
        prop_assert_eq!(text, t.decode(&ids, skip).unwrap());
    }

    #[test]
    fn any_text_survives_a_round_trip(text in "\\PC{0,40}") {
        let t = plain();
        prop_assert_eq!(t.decode(&t.encode(&text, false).unwrap(), false).unwrap(), text);
    }
}
