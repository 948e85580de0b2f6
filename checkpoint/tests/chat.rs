//! Chat templates in the style of the supported families give what transformers' Jinja gives.
//!
//! The templates in `templates/` were written for these tests; the wanted texts were rendered from them by transformers 5.24.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use treeline_checkpoint::{ChatTemplate, Message, Prompt};

fn template(name: &str) -> ChatTemplate {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates").join(format!("{name}.jinja"));
    let tokens = [("bos_token".to_owned(), "<|begin_of_text|>".to_owned())].into();
    ChatTemplate::new(fs::read_to_string(&path).unwrap(), &path, tokens).unwrap()
}

fn inline(source: &str) -> ChatTemplate {
    ChatTemplate::new(source.to_owned(), Path::new("t.jinja"), BTreeMap::new()).unwrap()
}

fn talk() -> Vec<Message> {
    let turns = [
        ("system", " Be brief. "),
        ("user", "1 < 2 & \"é\"?"),
        ("assistant", "<think>\nhm\n</think>\n\nYes."),
        ("user", "Sure?"),
    ];
    turns.map(|(role, text)| Message::new(role, text)).into()
}

fn prompt(thinking: Option<bool>, variables: &[(&str, Value)]) -> Prompt {
    let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    Prompt { add_generation_prompt: true, thinking, variables }
}

#[test]
fn think_tags() {
    let t = template("think_tags");
    let open = "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\n1 < 2 & \"é\"?<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n";
    for thinking in [None, Some(true)] {
        assert_eq!(t.render(&talk(), &prompt(thinking, &[])).unwrap(), open);
    }
    assert_eq!(t.render(&talk(), &prompt(Some(false), &[])).unwrap(), format!("{open}<think>\n\n</think>\n\n"));
    // The last answer keeps its thought.
    let answered = t.render(&talk()[1..3], &Prompt::default()).unwrap();
    let wanted =
        "<|im_start|>user\n1 < 2 & \"é\"?<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nYes.<|im_end|>\n";
    assert_eq!(answered, wanted);
}

#[test]
fn tools_are_written_as_python_writes_json() {
    let tool = json!({"name": "f", "args": {"a": [1, 2.5, null, true], "b": {}, "c": "<é>"}});
    let mut p = prompt(None, &[("tools", json!([tool]))]);
    p.add_generation_prompt = false;
    let wanted = "<|im_start|>system\n Be brief. \n\n# Tools\n{\"name\": \"f\", \"args\": {\"a\": [1, 2.5, null, true], \"b\": {}, \"c\": \"<é>\"}}<|im_end|>\n<|im_start|>user\n1 < 2 & \"é\"?<|im_end|>\n";
    assert_eq!(template("think_tags").render(&talk()[..2], &p).unwrap(), wanted);
    let t = inline(
        "{{ x | tojson }}|{{ x | tojson(indent=2) }}|{{ x|tojson(sort_keys=true) }}|{{ 'A b'.title() }}|{{ x.items()|list|length }}|{{ none }}|{{ true }}",
    );
    let got = t.render(&talk(), &prompt(None, &[("x", json!({"b": [1, {"c": "<'é>"}], "a": []}))])).unwrap();
    let wanted = "{\"b\": [1, {\"c\": \"<'é>\"}], \"a\": []}|{\n  \"b\": [\n    1,\n    {\n      \"c\": \"<'é>\"\n    }\n  ],\n  \"a\": []\n}|{\"a\": [], \"b\": [1, {\"c\": \"<'é>\"}]}|A B|2|None|True";
    assert_eq!(got, wanted);
}

#[test]
fn role_tokens() {
    let t = template("role_tokens");
    let body = "<|im_system|>system<|im_middle|> Be brief. <|im_end|><|im_user|>user<|im_middle|>1 < 2 & \"é\"?<|im_end|><|im_assistant|>assistant<|im_middle|><think>\nhm\n</think>\n\nYes.<|im_end|><|im_user|>user<|im_middle|>Sure?<|im_end|><|im_assistant|>assistant<|im_middle|>";
    for (thinking, end) in [(None, "<think>"), (Some(true), "<think>"), (Some(false), "<think></think>")] {
        assert_eq!(t.render(&talk(), &prompt(thinking, &[])).unwrap(), format!("{body}{end}"));
    }
    let answered = t.render(&talk()[1..3], &Prompt::default()).unwrap();
    assert!(answered.starts_with("<|im_system|>system<|im_middle|>You are a helpful assistant.<|im_end|><|im_user|>"));
}

#[test]
fn header_ids() {
    let t = template("header_ids");
    let date = ("date_string", json!("1 Jan 2025"));
    let got = t.render(&talk(), &prompt(Some(true), std::slice::from_ref(&date))).unwrap();
    let wanted = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday Date: 1 Jan 2025\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n1 < 2 & \"é\"?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<think>\nhm\n</think>\n\nYes.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nSure?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
    assert_eq!(got, wanted);
    let undated = t.render(&talk(), &prompt(None, &[])).unwrap_err().to_string();
    assert!(undated.contains("header_ids.jinja") && undated.contains("`date_string`"), "{undated}");
    let refused = t.render(&talk()[2..], &prompt(None, &[date])).unwrap_err().to_string();
    assert!(refused.contains("roles must alternate user/assistant"), "{refused}");
}

#[test]
fn where_the_template_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tokenizer_config.json");
    let none = ChatTemplate::open(dir.path()).unwrap_err().to_string();
    assert!(none.contains("no chat_template.jinja, and tokenizer_config.json no `chat_template`"), "{none}");
    let shown = |expect: &str| {
        let text = ChatTemplate::open(dir.path()).unwrap().render(&talk(), &Prompt::default()).unwrap();
        assert_eq!(text, expect);
    };
    let tokens = json!({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null});
    let with = |chat: Value| {
        let mut value = tokens.clone();
        value["chat_template"] = chat;
        fs::write(&config, value.to_string()).unwrap();
    };
    with(json!("{{ bos_token }}{{ messages[1].role }}{{ eos_token }}{{ pad_token }}"));
    shown("<s>user</s>");
    with(json!([{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]));
    shown("yes");
    with(json!([{"name": "tool_use", "template": "no"}]));
    assert!(ChatTemplate::open(dir.path()).unwrap_err().to_string().contains("without an entry named \"default\""));
    fs::write(dir.path().join("chat_template.jinja"), "file {{ messages|length }}\n").unwrap();
    shown("file 4");
    fs::write(dir.path().join("chat_template.jinja"), "{% if %}").unwrap();
    let broken = ChatTemplate::open(dir.path()).unwrap_err().to_string();
    assert!(broken.contains("chat_template.jinja: chat template: syntax error"), "{broken}");
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
    let deep = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    for (source, says) in [(endless, "fuel"), (deep, "recursion")] {
        let error = inline(source).render(&talk(), &Prompt::default()).unwrap_err().to_string();
        assert!(error.starts_with("t.jinja: chat template: ") && error.contains(says), "{error}");
    }
}
