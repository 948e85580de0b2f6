//! Tests of the experiment file: what is read, what is refused and where the caret stands, and the way back.

mod limits;
mod priced;
mod random;
mod refused;
mod round_trip;
mod synthetic;

use super::*;

/// A complete file of backend cpu; nothing in it is read from disk.
pub(super) const CPU: &str = r#"name = "demo"
seed = 7
record = "summary"

[target]
checkpoint = "models/target"

[drafter]
kind = "dflash"
checkpoint = "models/dflash"
width = 64

[backend]
kind = "cpu"
context = 512

[workload]
max_new = 96
ignore_eos = true
chat = "off"
concurrency = [1, 4]
[[workload.prompts]]
file = "prompts/code.jsonl"
take = 4

[sampling]
law = "sample-match"
temperature = [0.7, 0]

[cost]
curve = { rows = [1, 9, 65], ms = [4.5, 9, 30.25], source = "measured" }

[[policy]]
kind = "chain"
budget = [7]

[[policy]]
kind = "top-k"
budget = [16]
width = 4

[[policy]]
kind = "adaptive"
budget = [64]
"#;

/// A complete file of backend sim.
pub(super) const SIM: &str = r#"name = "replay"
seed = 7
record = "sample:10"
bootstrap = 500
baseline = false

[backend]
kind = "sim"
trace = "traces/demo.parquet"

[workload]
concurrency = [4]

[[policy]]
kind = "best-first"
budget = [8, 16]
"#;

pub(super) fn read(text: &str) -> Result<Experiment, ConfigError> {
    parse(text, "demo.toml", Path::new("/somewhere/experiments"), &Registry::builtin(), &Overrides::default())
}

pub(super) fn read_with(text: &str, overrides: &Overrides) -> Result<Experiment, ConfigError> {
    parse(text, "demo.toml", Path::new("/somewhere/experiments"), &Registry::builtin(), overrides)
}

#[test]
fn a_whole_file_is_read() {
    let e = read(CPU).unwrap();
    assert_eq!((e.name.as_str(), e.seed, e.record), ("demo", 7, Record::Summary));
    assert_eq!((e.bootstrap, e.baseline), (2000, true));
    assert_eq!(e.concurrency, [1, 4]);
    assert_eq!(e.temperatures(), [0.7, 0.0]);
    let Backend::Cpu(live) = &e.backend else { panic!("{:?}", e.backend) };
    assert_eq!(live.target.path, Path::new("/somewhere/experiments/models/target"));
    assert_eq!((live.context, live.prefill_chunk), (512, 64));
    assert_eq!((live.drafter.kind(), live.drafter.width(), live.drafter.depth()), ("dflash", 64, None));
    assert_eq!(live.workload.prompts[0].take, Some(4));
    assert_eq!(live.sampling.law, LawKind::SampleMatch);
    assert_eq!(e.cost.unwrap().curve.ms(), [4.5, 9.0, 30.25]);
    let kinds: Vec<_> = e.policies.iter().map(|p| (p.kind.as_str(), p.budgets.clone())).collect();
    assert_eq!(kinds, [("chain", vec![7]), ("top-k", vec![16]), ("adaptive", vec![64])]);
    assert_eq!(e.policies[1].params["width"], 4);
}

#[test]
fn a_replay_is_read() {
    let e = read(SIM).unwrap();
    assert_eq!((e.record, e.bootstrap, e.baseline), (Record::Sample(10), 500, false));
    let trace = Location::new("traces/demo.parquet", Path::new("/somewhere/experiments"));
    assert_eq!(e.backend, Backend::Sim(Replay { trace }));
}

#[test]
fn the_command_line_may_name_another_backend() {
    let sim = |trace: Option<&str>| Overrides {
        backend: Some("sim".into()),
        trace: trace.map(PathBuf::from),
        ..Overrides::default()
    };
    let e = read_with(CPU, &sim(Some("/somewhere/t.parquet"))).unwrap();
    let trace = Location { written: "../t.parquet".into(), path: "/somewhere/t.parquet".into() };
    assert_eq!(e.backend, Backend::Sim(Replay { trace }));
    let without = read_with(CPU, &sim(None)).unwrap_err().to_string();
    assert!(without.starts_with("backend `sim` replays a trace, and none is named"), "{without}");
    let cuda = Overrides { backend: Some("cuda".into()), ..Overrides::default() };
    let without = read_with(CPU, &cuda).unwrap_err().to_string();
    assert!(without.starts_with("missing section `cuda`, which backend `cuda` needs"), "{without}");
    let Backend::Cuda(live, how) = read_with(&on_cuda("cpu", ""), &cuda).unwrap().backend else { panic!("not cuda") };
    assert_eq!((live.prefill_chunk, live.context), (256, 512));
    assert_eq!(how, Cuda { gpu: 0, dtype: Precision::Bf16, graphs: true, emulated: false });
}

/// [`CPU`] with a section `[cuda]`.
pub(super) fn on_cuda(kind: &str, keys: &str) -> String {
    let text = CPU.replace("kind = \"cpu\"", &format!("kind = \"{kind}\""));
    text.replace("[workload]", &format!("[cuda]\ndtype = \"bf16\"\n{keys}\n[workload]"))
}

#[test]
fn a_file_of_backend_cuda_is_read() {
    let e = read(&on_cuda("cuda", "gpu = 3\ngraphs = false")).unwrap();
    let Backend::Cuda(_, how) = &e.backend else { panic!("{:?}", e.backend) };
    assert_eq!(*how, Cuda { gpu: 3, dtype: Precision::Bf16, graphs: false, emulated: false });
    let emulated = read(&on_cuda("cuda", "emulated = true")).unwrap();
    let Backend::Cuda(_, how) = &emulated.backend else { panic!("{:?}", emulated.backend) };
    assert_eq!(*how, Cuda { gpu: 0, dtype: Precision::Bf16, graphs: true, emulated: true });
    // What the emulator does not read is not written back either, so that the resolved file can be run.
    assert!(!crate::config::resolved_toml(&emulated, Path::new("/somewhere")).contains("gpu = 0"));
    assert_eq!((e.backend.kind(), e.temperatures()), ("cuda", &[0.7, 0.0][..]));
    // The section waits for `--backend cuda` in a file of backend cpu.
    assert!(matches!(read(&on_cuda("cpu", "")).unwrap().backend, Backend::Cpu(_)));
}

#[test]
fn a_missing_cost_is_forgiven_where_it_is_about_to_be_measured() {
    let text = CPU.replace("[cost]\ncurve", "#");
    assert!(read(&text).unwrap_err().to_string().starts_with("policy `adaptive` needs a step cost"));
    let e = read_with(&text, &Overrides { without_cost: true, ..Overrides::default() }).unwrap();
    assert_eq!(e.cost, None);
}

#[test]
fn drafters_take_their_own_keys() {
    let with = |keys: &str| {
        let text = CPU.replace("kind = \"dflash\"\ncheckpoint = \"models/dflash\"\nwidth = 64\n", keys);
        let Backend::Cpu(live) = read(&text).unwrap().backend else { panic!("not cpu") };
        live.drafter
    };
    let ngram = with("kind = \"ngram\"\nwidth = 8\ndepth = 5\norder = 4\n");
    assert_eq!(ngram, Drafter::Ngram { width: 8, depth: 5, order: 4 });
    let ar = with("kind = \"autoregressive\"\ncheckpoint = \"m\"\nwidth = 8\ndepth = 5\n");
    assert_eq!((ar.kind(), ar.depth()), ("autoregressive", Some(5)));
}

#[test]
fn files_that_do_not_exist_are_named_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.toml");
    let missing = |what: &str, line: &str| {
        let shown = load(&file, &Registry::builtin()).unwrap_err().to_string();
        assert!(shown.starts_with(what) && shown.contains(line), "{shown}");
    };
    missing("cannot read experiment file", "demo.toml");
    std::fs::write(&file, CPU).unwrap();
    missing("no such checkpoint folder", "demo.toml:6:14");
    std::fs::create_dir_all(folder.path().join("models/target")).unwrap();
    missing("no such checkpoint folder", "demo.toml:10:14");
    std::fs::create_dir_all(folder.path().join("models/dflash")).unwrap();
    missing("no such prompt file", "demo.toml:23:8");
    std::fs::create_dir_all(folder.path().join("prompts")).unwrap();
    std::fs::write(folder.path().join("prompts/code.jsonl"), "").unwrap();
    load(&file, &Registry::builtin()).unwrap();
    std::fs::write(&file, SIM).unwrap();
    missing("no such trace", "demo.toml:9:9");
    std::fs::write(&file, b"name = \"x\"\n\xff\n").unwrap();
    missing("cannot read experiment file", "line 2 is not UTF-8");
    std::fs::write(&file, vec![b'#'; FILE_MAX as usize + 1]).unwrap();
    missing("cannot read experiment file", "too many");
    assert!(load(folder.path(), &Registry::builtin()).unwrap_err().to_string().contains("is not an ordinary file"));
}

/// The committed schema is the one that the types give. `treeline schema > experiments/schema/experiment.schema.json`
/// renews it.
#[test]
fn the_committed_schema_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/experiment.schema.json");
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(committed == schema_text(&Registry::builtin()), "{path} is stale: renew it with `treeline schema`");
}

/// Every key that the schema offers is one that the parser knows, at every level: a file with all of them is refused for
/// something else than an unknown key.
#[test]
fn the_schema_knows_every_section() {
    let schema = schema(&Registry::builtin());
    let keys =
        |v: &serde_json::Value| v["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let p = &schema["properties"];
    assert_eq!(
        keys(&schema),
        "name seed record bootstrap baseline folder target drafter backend cuda workload sampling cost deployment \
         acceptance reference split policy"
    );
    assert_eq!(keys(&p["backend"]), "kind context prefill_chunk trace");
    assert_eq!(keys(&p["cuda"]), "gpu dtype graphs expert_overlap prompt emulated");
    assert_eq!(p["bootstrap"]["maximum"], 100_000);
    let policies = p["policy"]["items"]["oneOf"].as_array().unwrap();
    assert_eq!(policies.len(), Registry::builtin().kinds().count());
    assert!(policies.iter().all(|p| p["additionalProperties"] == false), "every policy refuses unknown keys");
    assert_eq!(keys(&policies[0]), "kind budget");
}

/// The experiments of this folder name only what is read, and say how they came by what they state.
#[test]
fn the_committed_experiments_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".toml") && name != "Cargo.toml" {
            let text = std::fs::read_to_string(&path).unwrap();
            let e = parse(&text, &name, folder, &Registry::builtin(), &Overrides::default());
            let e = e.unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(format!("{}.toml", e.name), name, "the run folder carries the file's name");
            names.push(name);
        }
    }
    names.sort();
    assert_eq!(
        names,
        [
            "batch-wide.toml",
            "budget-ceiling.toml",
            "kimi-rank-priced.toml",
            "kimi-rank.toml",
            "mini-pair.toml",
            "quickstart.toml"
        ]
    );
}
