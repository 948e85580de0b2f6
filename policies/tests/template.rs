//! The plug-in template: it compiles, conforms and leaves nothing unfilled.

// The template's own source, placeholders and all: they stand in strings and comments only.
#[path = "../template/src/lib.rs"]
mod plugin;

use treeline_policies::template::{NameError, render};
use treeline_policies::{BuildError, PolicyConfig, Registry, conformance};

#[test]
fn the_policy_of_the_template_conforms() {
    assert_eq!(conformance::check(&|limits| plugin::Config::example().build(limits)), Ok(()));
}

#[test]
fn it_can_be_registered_once() {
    let mut registry = Registry::builtin();
    assert_eq!(registry.register::<plugin::Config>(), Ok(()));
    assert_eq!(registry.register::<plugin::Config>(), Err(BuildError::Taken("{{name}}".into())));
    let resolved = registry.resolve(plugin::Config::KIND, &serde_json::json!({})).unwrap();
    assert_eq!(resolved, serde_json::json!({ "least": 0.02 }));
}

#[test]
fn files_are_filled_in() {
    let files = render("wide-root", "/some where/\"treeline\"/").unwrap();
    let paths: Vec<_> = files.iter().map(|f| f.0).collect();
    assert_eq!(paths, ["Cargo.toml", "src/main.rs", "src/lib.rs", "tests/conformance.rs", "README.md", ".gitignore"]);
    for (path, text) in &files {
        assert!(!text.contains("{{"), "{path}: {text}");
    }
    assert!(files[0].1.contains(r#"treeline-core = { path = "/some where/\"treeline\"/core" }"#), "{}", files[0].1);
    assert!(files[1].1.contains("wide_root::Config"));
    assert!(files[2].1.contains(r#"const KIND: &'static str = "wide-root";"#));
}

#[test]
fn bad_names_are_refused() {
    for name in ["", "Wide", "1st", "a--b", "-a", "a-", "a_b", "../up", "ä"] {
        assert_eq!(render(name, "/r"), Err(NameError::Form(name.into())));
    }
    // Words of the language, and names that cargo keeps for itself.
    for name in ["self", "type", "try", "while", "yield", "build", "deps", "incremental", "alloc"] {
        assert_eq!(render(name, "/r"), Err(NameError::Reserved(name.into())));
    }
    // Results call the baseline `plain`: a policy of that name would never be run.
    for name in ["chain", "plain"] {
        assert_eq!(render(name, "/r"), Err(NameError::Taken(name.into())));
    }
}
