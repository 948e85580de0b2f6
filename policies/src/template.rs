//! The plug-in crate that `treeline policy new NAME` writes: a policy outside the workspace.

use thiserror::Error;

/// Path and text of each file, with `{{…}}` to be filled in.
const FILES: [(&str, &str); 6] = [
    ("Cargo.toml", include_str!("../template/Cargo.toml.txt")),
    ("src/main.rs", include_str!("../template/src/main.rs.txt")),
    ("src/lib.rs", include_str!("../template/src/lib.rs")),
    ("tests/conformance.rs", include_str!("../template/tests/conformance.rs.txt")),
    ("README.md", include_str!("../template/README.md.txt")),
    (".gitignore", include_str!("../template/gitignore.txt")),
];

/// Why a name cannot be a plug-in's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// Not a crate name in kebab case.
    #[error(
        "`{0}` is no name for a policy: use lower-case letters, digits and single hyphens, beginning with a letter"
    )]
    Form(String),
    /// A word that cannot name a crate.
    #[error("`{0}` is a word of the language or of cargo: choose another name")]
    Reserved(String),
    /// A built-in policy has it.
    #[error("`{0}` is a built-in policy: choose another name")]
    Taken(String),
}

/// Words that cargo or the compiler refuse as a crate's name, or that the crate's dependencies have.
const RESERVED: [&str; 65] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "schemars",
    "self",
    "serde",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "treeline",
    "treeline-core",
    "treeline-policies",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Checks a plug-in's name.
///
/// # Errors
/// [`NameError`] says what is wrong with it.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let letter = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if !letter || !name.split('-').all(word) || name.len() > 64 {
        return Err(NameError::Form(name.into()));
    }
    if RESERVED.contains(&name) {
        return Err(NameError::Reserved(name.into()));
    }
    if name == crate::registry::PLAIN || crate::Registry::builtin().kinds().any(|k| k == name) {
        return Err(NameError::Taken(name.into()));
    }
    Ok(())
}

/// The files of plug-in `name`: path relative to its folder, and contents. `root` is the checkout that its dependencies
/// come from, as it shall stand in its Cargo.toml.
///
/// # Errors
/// As [`check_name`].
pub fn render(name: &str, root: &str) -> Result<Vec<(&'static str, String)>, NameError> {
    check_name(name)?;
    // A JSON string of a path is a TOML basic string too.
    let path = |folder: &str| serde_json::Value::from(format!("{}/{folder}", root.trim_end_matches('/'))).to_string();
    let fill = |text: &str| {
        text.replace("{{name}}", name)
            .replace("{{crate}}", &name.replace('-', "_"))
            .replace("{{experiments}}", &path("experiments"))
            .replace("{{core}}", &path("core"))
            .replace("{{policies}}", &path("policies"))
    };
    Ok(FILES.iter().map(|(path, text)| (*path, fill(text))).collect())
}
