//! Prompt files into tokens.

use super::plan::sha256;
use crate::config::{Chat, Live, PromptFile};
use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use treeline_checkpoint::{ChatTemplate, Message, Prompt, Tokenizer};
use treeline_sim::text;

/// The most bytes of a prompt file.
const FILE_MAX: u64 = 256 << 20;

/// A prompt, tokenised.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tokens {
    /// Its domain.
    pub domain: String,
    /// Token ids.
    pub ids: Vec<u32>,
}

/// All prompts of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prompts {
    /// In file order; a prompt's index is its request's id.
    pub list: Vec<Tokens>,
    /// The files' names and how many of each are used, in words.
    pub name: String,
    /// Per file: as written, digest, lines used.
    pub manifest: Value,
}

/// One line of a prompt file.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    id: Value,
    domain: String,
    text: String,
}

/// Reads and tokenises the prompts of `live`.
///
/// # Errors
/// A file that cannot be read, a line that is no prompt (named by file and line), a text that the template or tokenizer
/// refuses.
pub(super) fn load(live: &Live, tokenizer: &Tokenizer) -> anyhow::Result<Prompts> {
    let template = match live.workload.chat {
        Chat::Off => None,
        Chat::Plain | Chat::Thinking => Some(ChatTemplate::open(&live.target.path)?),
    };
    let mut prompts = Prompts { list: Vec::new(), name: String::new(), manifest: json!([]) };
    let mut names = Vec::new();
    let mut files = Vec::new();
    for file in &live.workload.prompts {
        let (lines, digest) = lines(file)?;
        let stem = file.file.path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        names.push(format!("{stem} {}", lines.len()));
        files.push(json!({ "file": file.file.written, "sha256": digest, "used": lines.len() }));
        for line in lines {
            let named = || format!("{}: prompt {}", file.file.path.display(), line.id);
            let ids = match &template {
                None => tokenizer.encode(&line.text, true).with_context(named)?,
                Some(template) => {
                    let thinking = Some(live.workload.chat == Chat::Thinking);
                    let how = Prompt { add_generation_prompt: true, thinking, ..Prompt::default() };
                    let text = template.render(&[Message::new("user", &line.text)], &how).with_context(named)?;
                    tokenizer.encode(&text, false).with_context(named)?
                }
            };
            anyhow::ensure!(!ids.is_empty(), "{}: has no tokens", named());
            prompts.list.push(Tokens { domain: line.domain, ids });
        }
    }
    anyhow::ensure!(!prompts.list.is_empty(), "the workload has no prompts");
    prompts.name = names.join(", ");
    prompts.manifest = Value::Array(files);
    Ok(prompts)
}

/// The first lines of a prompt file, and the digest of the whole file.
pub(super) fn lines(file: &PromptFile) -> anyhow::Result<(Vec<Line>, String)> {
    let path: &Path = &file.file.path;
    let named = || path.display().to_string();
    let bytes = text::bytes(path, FILE_MAX).with_context(named)?;
    let digest = sha256(&bytes);
    let text = text::decode(bytes).map_err(|e| match e {
        text::TextError::NotUtf8 { line } => anyhow::anyhow!("{}, line {line}: is not UTF-8", named()),
        other => anyhow::anyhow!("{}: {other}", named()),
    })?;
    let take = file.take.map_or(usize::MAX, |n| n as usize);
    let used = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()).take(take);
    let parse = |(i, line): (usize, &str)| {
        serde_json::from_str::<Line>(line).map_err(|e| {
            // To the parser every line is the first.
            let why = e.to_string().replace(" at line 1 column ", ", column ");
            anyhow::anyhow!("{}, line {}: is no {{\"id\", \"domain\", \"text\"}}: {why}", path.display(), i + 1)
        })
    };
    let lines = used.map(parse).collect::<anyhow::Result<Vec<Line>>>()?;
    if let Some(wanted) = file.take.filter(|&n| lines.len() < n as usize) {
        anyhow::bail!("{}: {wanted} prompts are wanted, the file has {}", path.display(), lines.len());
    }
    anyhow::ensure!(!lines.is_empty(), "{}: has no prompts", path.display());
    Ok((lines, digest))
}
