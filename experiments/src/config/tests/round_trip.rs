//! `experiment.resolved.toml` says everything and reads back as the same experiment.

use super::*;

/// The resolved text, read from the folder that it is written for.
fn again(e: &Experiment, at: &str) -> Experiment {
    let text = resolved_toml(e, Path::new(at));
    let back = parse(&text, "experiment.resolved.toml", Path::new(at), &Registry::builtin(), &Overrides::default());
    back.unwrap_or_else(|why| panic!("{why}\n{text}"))
}

#[test]
fn resolved_files_read_back_as_the_same_experiment() {
    let mut texts = vec![CPU.to_owned(), SIM.to_owned(), synthetic::SHAPES.to_owned()];
    texts.push(synthetic::SHAPES.replace("layers = 61, ", "").replace("prompt = 8192\n", ""));
    let drafter = "kind = \"dflash\"\ncheckpoint = \"models/dflash\"\nwidth = 64\n";
    for keys in [
        "kind = \"ngram\"\nwidth = 8\ndepth = 5\norder = 4\n",
        "kind = \"autoregressive\"\ncheckpoint = \"m\"\nwidth = 8\ndepth = 5\n",
    ] {
        texts.push(CPU.replace(drafter, keys));
    }
    texts.push(CPU.replace("seed = 7", "seed = 18446744073709551615"));
    texts.push(CPU.replace("[0.7, 0]", "[0.1, 0.012345678901234]").replace("take = 4\n", ""));
    texts.push(CPU.replace("models/target", "a \\\"quoted\\\" é/\\\\b"));
    texts.push(CPU.replace("\"sample-match\"", "\"greedy\"").replace("[0.7, 0]", "[0]"));
    let examples: String = Registry::builtin().kinds().map(example).collect();
    texts.push(format!("{}{examples}", &CPU[..CPU.find("[[policy]]").unwrap()]));
    for text in texts {
        let e = read(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        for at in ["/somewhere/experiments", "/somewhere/runs/demo-20260101-000000", "/elsewhere"] {
            assert_eq!(again(&e, at), e, "at {at}");
        }
    }
}

/// A policy's typical configuration as a table of the file.
fn example(kind: &str) -> String {
    let params = Registry::builtin().example(kind).unwrap();
    let mut text = format!("[[policy]]\nkind = \"{kind}\"\nbudget = [16]\n");
    for (key, value) in params.as_object().unwrap() {
        if !value.is_null() {
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
    text
}

#[test]
fn resolved_files_spell_out_what_the_file_left_open() {
    let text = resolved_toml(&read(CPU).unwrap(), Path::new("/somewhere/runs/x"));
    for line in [
        "bootstrap = 2000",
        "baseline = true",
        "folder = \"../../experiments\"",
        "prefill_chunk = 64",
        "top_k = 0",
        "top_p = 1.0",
        "temperature = [0.7, 0.0]",
        "checkpoint = \"models/target\"",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.contains("/somewhere"), "a result must not name the machine's folders\n{text}");
}
