//! Files of a user's own: which kind they are, how editors leave them, and what contradicts in them.

use super::{config, here, text};
use std::path::{Path, PathBuf};
use treeline_sim::accept;
use treeline_sim::cost::{CostModel, CostSetup, OpScales, Tier};
use treeline_sim::experts;
use treeline_sim::optable::OpTables;
use treeline_sim::profile::{self, Deployment, Hardware, Kind};

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Every shipped file, written by an editor that marks its files, is of its kind and read as what ships.
#[test]
fn copies_of_what_ships_are_recognised_and_read_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |sub: &str, name: &str| {
        let marked = format!("\u{feff}{}", text(&format!("{sub}/{name}.toml")).replace('\n', "\r\n"));
        write(folder.path(), "mine.toml", &marked)
    };
    let (shipped, own) = (profile::shipped(), "./mine.toml");
    for name in shipped.hardware {
        assert_eq!(Kind::of(&copy("hardware", name)).unwrap(), Kind::Hardware, "{name}");
        assert_eq!(profile::hardware(own, folder.path()).unwrap(), profile::hardware(name, here()).unwrap());
    }
    for name in shipped.models {
        assert_eq!(Kind::of(&copy("models", name)).unwrap(), Kind::Model, "{name}");
        assert_eq!(profile::model(own, folder.path()).unwrap(), profile::model(name, here()).unwrap());
    }
    for name in shipped.drafters {
        assert_eq!(Kind::of(&copy("drafters", name)).unwrap(), Kind::Drafter, "{name}");
        assert_eq!(profile::drafter(own, folder.path()).unwrap(), profile::drafter(name, here()).unwrap());
    }
    for name in shipped.deployments {
        assert_eq!(Kind::of(&copy("deployments", name)).unwrap(), Kind::Deployment, "{name}");
        assert_eq!(profile::deployment(own, folder.path()).unwrap(), profile::deployment(name, here()).unwrap());
    }
    for name in experts::shipped() {
        assert_eq!(Kind::of(&copy("experts", name)).unwrap(), Kind::Experts, "{name}");
        assert_eq!(experts::experts(own, folder.path()).unwrap(), experts::experts(name, here()).unwrap());
    }
    for name in accept::shipped() {
        let process = accept::process(&name, here()).unwrap();
        // A path needs no ending.
        let path = write(folder.path(), "mine", &format!("\u{feff}{}", process.to_toml().unwrap()));
        assert_eq!(Kind::of(&path).unwrap(), Kind::Process, "{name}");
        assert_eq!(accept::process("./mine", folder.path()).unwrap(), process);
    }
}

#[test]
fn configs_are_models_or_drafters() {
    let folder = tempfile::tempdir().unwrap();
    for (name, kind) in
        [("kimi_k25.json", Kind::Model), ("dflash_kimi_k26.json", Kind::Drafter), ("qwen3_8b.json", Kind::Model)]
    {
        let path = write(folder.path(), "config.json", &config(name).0);
        assert_eq!((Kind::of(&path).unwrap(), Kind::of(folder.path()).unwrap()), (kind, kind), "{name}");
    }
    let unknown = Kind::of(&write(folder.path(), "x.toml", "name = \"x\"\n")).unwrap_err().to_string();
    assert!(unknown.contains("x.toml:1: is neither hardware") && !unknown.contains('`'), "{unknown}");
    let broken = Kind::of(&write(folder.path(), "x.toml", "a = 1\nname = \n")).unwrap_err().to_string();
    assert!(broken.contains("x.toml:2: not valid TOML"), "{broken}");
    let missing = Kind::of(&folder.path().join("none.toml")).unwrap_err().to_string();
    assert!(missing.contains("none.toml") && missing.contains("help: relative paths"), "{missing}");
}

/// An error of a process names its file and key.
#[test]
fn errors_of_processes_name_file_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let good = accept::process("kimi-k2.6-dspark", here()).unwrap().to_toml().unwrap();
    for (from, to, says) in [
        ("drafter = \"block\"\n", "", "missing field `drafter`"),
        ("drafter = \"block\"", "drafter = \"eagle\"", "line 3: unknown variant `eagle`, expected `block` or `steps`"),
        ("width = 64", "width = 1", "`width`: needs at least 2 ranks"),
        ("vocab = ", "vocabulary = ", "unknown field `vocabulary`"),
    ] {
        assert!(good.contains(from), "{from}");
        write(folder.path(), "mine.toml", &good.replacen(from, to, 1));
        let said = accept::process("./mine.toml", folder.path()).unwrap_err().to_string();
        assert!(said.contains("mine.toml") && said.contains(says) && !said.contains('\n'), "{said}");
    }
}

#[test]
fn a_capability_is_two_numbers() {
    let good = text("hardware/h200-sxm.toml");
    for (wrong, at) in
        [("banana", "banana"), ("9", "9"), ("9.", "9."), ("9.0.1", "9.0.1"), ("-9.0", "-9.0"), ("sm_90", "sm_90")]
    {
        let said = Hardware::from_toml(&good.replacen("\"9.0\"", &format!("{wrong:?}"), 1), "mine.toml").unwrap_err();
        let said = said.to_string();
        assert!(said.contains("`capability`: is") && said.contains(at) && said.contains("mine.toml:"), "{said}");
    }
    assert!(Hardware::from_toml(&good.replacen("\"9.0\"", "\"12.1\"", 1), "mine.toml").is_ok());
}

/// Ranks that divide nothing name the key and what would do.
#[test]
fn odd_ranks_say_which_would_do() {
    let odd = text("deployments/sglang-0.5.14-b300-tp8.toml").replacen("ranks = { value = 8", "ranks = { value = 3", 1);
    let odd = Deployment::from_toml(&odd, "mine.toml").unwrap();
    let (hardware, model) =
        (profile::hardware("b300-sxm6", here()).unwrap(), profile::model("kimi-k2.6", here()).unwrap());
    let said = odd.check(&hardware, &model).unwrap_err().to_string();
    assert!(said.contains("`ranks` = 3") && said.contains("attention heads of kimi-k2.6: 64"), "{said}");
    assert!(said.contains("help: set `ranks` of the deployment to one of 1, 2, 4, 8"), "{said}");
}

/// A version without tables of its own is not priced as if it had them.
#[test]
fn borrowed_tables_are_named_with_their_reason() {
    let own = profile::deployment("sglang-0.5.14-b300-tp8", here()).unwrap();
    assert!(own.borrowed().is_empty() && !own.other_version());
    // 0.24 covers 0.24.0; its attention kernel is another engine's, which the profile says.
    let vllm = profile::deployment("vllm-0.24-b300-tp8", here()).unwrap();
    assert!(!vllm.other_version());
    assert!(
        vllm.borrowed().len() == 1
            && vllm.borrowed()[0].starts_with("attention of vllm 0.24: priced by sglang 0.5.14 (")
    );
    let old = profile::deployment("vllm-0.16-h200-tp8", here()).unwrap();
    assert!(old.other_version() && old.borrowed().len() == 5, "{:?}", old.borrowed());
    let shown = old.to_string();
    assert!(shown.contains("other tables: moe of vllm 0.16: priced by vllm 0.24.0 ("), "{shown}");
    let next = text("deployments/sglang-0.5.14-b300-tp8.toml").replacen("version = \"0.5.14\"", "version = \"9.9\"", 1);
    let next = Deployment::from_toml(&next, "mine.toml").unwrap();
    assert!(
        next.other_version() && next.borrowed().iter().all(|b| b.contains("of sglang 9.9: priced by sglang 0.5.14"))
    );
}

#[test]
fn hardware_without_a_system_says_which_key_is_missing() {
    let mine = text("hardware/b300-sxm6.toml").replacen("system = \"b300\"\n", "", 1);
    let hardware = Hardware::from_toml(&mine, "mine.toml").unwrap();
    assert_eq!(hardware.system, None);
    let (model, drafter) =
        (profile::model("kimi-k2.6", here()).unwrap(), profile::drafter("kimi-k2.6-dflash", here()).unwrap());
    let deployment = profile::deployment("sglang-0.5.14-b300-tp8", here()).unwrap();
    let setup = |tier| CostSetup {
        hardware: &hardware,
        model: &model,
        drafter: Some(&drafter),
        deployment: &deployment,
        tier,
        overhead_scale: 1.0,
        allow_extrapolation: true,
        experts: Some(experts::Experts::Uniform),
        tables: OpTables::shipped(),
        calibration: None,
        scales: OpScales::default(),
    };
    let said = CostModel::new(&setup(Tier::Table)).unwrap_err().to_string();
    assert!(said.contains("b300-sxm6") && said.contains("key `system` is missing"), "{said}");
    assert!(said.contains("one of b200, b300, h200"), "{said}");
    assert!(CostModel::new(&setup(Tier::Bound)).is_ok());
}
