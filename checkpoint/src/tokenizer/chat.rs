//! Chat templates: the Jinja of `chat_template.jinja` or `tokenizer_config.json`, in the environment that transformers gives it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::value::{Kwargs, Value as Jinja, ValueKind};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::special;
use crate::error::{Error, Result};
use crate::json::read_limited;

/// No public template comes near this size.
const TEMPLATE_LIMIT: u64 = 4 << 20;

/// Longest tag, without the texts in it; a long condition takes a few hundred.
const TAG_LIMIT: usize = 4096;

/// Steps after which a template is stopped; a long conversation takes a few thousand.
const FUEL: u64 = 5_000_000;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Text.
    pub content: String,
}

impl Message {
    /// A turn of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// How a conversation is turned into a prompt.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// Whether to end with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Thinking on or off, given to the template as `enable_thinking` (Qwen3) and `thinking` (Kimi); None leaves both undefined,
    /// so the template's own default holds.
    pub thinking: Option<bool>,
    /// Other variables of the template, such as Llama's `date_string`.
    pub variables: BTreeMap<String, Value>,
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    path: PathBuf,
    environment: Environment<'static>,
    /// `bos_token` and its like, which templates write out.
    tokens: BTreeMap<String, String>,
    /// Whether the template asks for today's date.
    dated: bool,
}

impl ChatTemplate {
    /// The default template of a checkpoint folder: `chat_template.jinja`, else `chat_template` of `tokenizer_config.json`
    /// (a string, or the entry named "default" of a list).
    ///
    /// # Errors
    /// No template in the folder; one that does not compile.
    pub fn open(dir: &Path) -> Result<Self> {
        let config = special::object(dir, "tokenizer_config.json")?.unwrap_or_default();
        let named = config.iter().filter(|(key, _)| key.ends_with("_token"));
        let tokens = named.filter_map(|(key, v)| Some((key.clone(), special::text(v)?.to_owned()))).collect();
        let file = dir.join("chat_template.jinja");
        if file.exists() {
            let bytes = read_limited(&file, TEMPLATE_LIMIT)?;
            let source = String::from_utf8(bytes).map_err(|e| fail(&file, format!("not UTF-8: {e}")))?;
            return Self::new(source, &file, tokens);
        }
        let path = dir.join("tokenizer_config.json");
        let source = match config.get("chat_template") {
            Some(Value::String(source)) => source.clone(),
            Some(Value::Array(list)) => {
                let default = list.iter().find(|t| t.get("name").and_then(Value::as_str) == Some("default"));
                let source = default.and_then(|t| t.get("template")).and_then(Value::as_str);
                source
                    .ok_or_else(|| fail(&path, "`chat_template` is a list without an entry named \"default\""))?
                    .to_owned()
            }
            _ => {
                let problem =
                    "none: the folder has no chat_template.jinja, and tokenizer_config.json no `chat_template`";
                return Err(fail(dir, problem));
            }
        };
        Self::new(source, &path, tokens)
    }

    /// Compiles a template; `path` is for messages, `tokens` holds variables such as `bos_token`.
    ///
    /// # Errors
    /// The source is no template.
    pub fn new(source: String, path: &Path, tokens: BTreeMap<String, String>) -> Result<Self> {
        let mut environment = Environment::new();
        // As transformers compiles them.
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(python_format);
        environment.add_filter("tojson", tojson);
        environment.add_function(
            "raise_exception",
            |message: String| -> std::result::Result<Jinja, minijinja::Error> {
                Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("the template refuses: {message}")))
            },
        );
        check_tags(&source).map_err(|problem| fail(path, problem))?;
        let dated = source.contains("strftime_now");
        environment.add_template_owned("chat", source).map_err(|e| fail(path, chain(&e)))?;
        Ok(Self { path: path.to_owned(), environment, tokens, dated })
    }

    /// The prompt of a conversation. Encode it with `special = false`: templates write their special tokens themselves.
    ///
    /// # Errors
    /// The template refuses the conversation, asks for today's date where [`Prompt::variables`] has no `date_string`, uses
    /// something that is not known here, or does not end.
    pub fn render(&self, messages: &[Message], prompt: &Prompt) -> Result<String> {
        if self.dated && !prompt.variables.contains_key("date_string") {
            let problem =
                "writes today's date into the prompt: set the variable `date_string`, so that a run can be repeated";
            return Err(fail(&self.path, problem));
        }
        let mut variables: BTreeMap<&str, Jinja> = BTreeMap::new();
        variables.extend(self.tokens.iter().map(|(k, v)| (k.as_str(), Jinja::from(v.as_str()))));
        variables.insert("messages", Jinja::from_serialize(messages));
        variables.insert("add_generation_prompt", Jinja::from(prompt.add_generation_prompt));
        variables.insert("tools", Jinja::from(()));
        variables.insert("documents", Jinja::from(()));
        if let Some(thinking) = prompt.thinking {
            variables.insert("enable_thinking", Jinja::from(thinking));
            variables.insert("thinking", Jinja::from(thinking));
        }
        variables.extend(prompt.variables.iter().map(|(k, v)| (k.as_str(), Jinja::from_serialize(v))));
        let template = self.environment.get_template("chat").map_err(|e| fail(&self.path, chain(&e)))?;
        template.render(variables).map_err(|e| fail(&self.path, chain(&e)))
    }
}

fn fail(path: &Path, problem: impl Into<String>) -> Error {
    Error::Template { path: path.to_owned(), problem: problem.into() }
}

/// An error with its causes, on one line.
fn chain(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(e) = cause {
        text += &format!(": {e}");
        cause = e.source();
    }
    text
}

/// Refuses a tag of more than [`TAG_LIMIT`] bytes, text in quotes left out: the template library's parser recurses over a chain of
/// operators without a limit of its own.
fn check_tags(source: &str) -> std::result::Result<(), String> {
    let bytes = source.as_bytes();
    let mut at = 0;
    while let Some(start) = bytes[at..].windows(2).position(|w| w == b"{{" || w == b"{%").map(|i| at + i) {
        let close: &[u8] = if bytes[start + 1] == b'{' { b"}}" } else { b"%}" };
        let (mut quote, mut length) = (None, 0);
        at = start + 2;
        while at < bytes.len() && (quote.is_some() || !bytes[at..].starts_with(close)) {
            match (quote, bytes[at]) {
                (Some(_), b'\\') => at += 1,
                (Some(open), byte) if byte == open => quote = None,
                (Some(_), _) => {}
                (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
                (None, _) => length += 1,
            }
            at += 1;
        }
        if length > TAG_LIMIT {
            let line = 1 + bytes[..start].iter().filter(|b| **b == b'\n').count();
            return Err(format!("line {line}: a tag of more than {TAG_LIMIT} bytes beside its texts"));
        }
        at = at.min(bytes.len());
    }
    Ok(())
}

/// Writes a value as Python's Jinja does: `None`, `True` and `False` differ from Rust's.
fn python_format(
    out: &mut minijinja::Output<'_>,
    state: &minijinja::State<'_, '_>,
    value: &Jinja,
) -> std::result::Result<(), minijinja::Error> {
    let word = match (value.kind(), value.is_true()) {
        (ValueKind::None, _) => "None",
        (ValueKind::Bool, true) => "True",
        (ValueKind::Bool, false) => "False",
        _ => return minijinja::escape_formatter(out, state, value),
    };
    out.write_str(word).map_err(|_| minijinja::Error::new(ErrorKind::WriteFailure, "the prompt could not be written"))
}

/// transformers' `tojson`: Python's `json.dumps` without ASCII escapes; Jinja's own would escape HTML.
fn tojson(value: Jinja, options: Kwargs) -> std::result::Result<String, minijinja::Error> {
    let invalid = |e: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    let indent: Option<usize> = options.get("indent")?;
    let sort: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let mut value = serde_json::to_value(&value).map_err(invalid)?;
    if sort == Some(true) {
        value.sort_all_objects();
    }
    let mut out = String::new();
    write_json(&value, indent.map(|n| n.min(16)), 0, &mut out).map_err(invalid)?;
    Ok(out)
}

/// `json.dumps`: ", " and ": " on one line, or one member a line.
fn write_json(value: &Value, indent: Option<usize>, depth: usize, out: &mut String) -> serde_json::Result<()> {
    let line = |out: &mut String, depth: usize| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    let separator = if indent.is_some() { "," } else { ", " };
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { separator } else { "" });
                line(out, depth + 1);
                write_json(item, indent, depth + 1, out)?;
            }
            line(out, depth);
            out.push(']');
        }
        Value::Object(map) if !map.is_empty() => {
            out.push('{');
            for (i, (key, item)) in map.iter().enumerate() {
                out.push_str(if i > 0 { separator } else { "" });
                line(out, depth + 1);
                out.push_str(&serde_json::to_string(key)?);
                out.push_str(": ");
                write_json(item, indent, depth + 1, out)?;
            }
            line(out, depth);
            out.push('}');
        }
        other => out.push_str(&serde_json::to_string(other)?),
    }
    Ok(())
}
