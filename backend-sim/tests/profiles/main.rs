//! Profiles: what ships is whole and consistent, user files are read, contradictions are named.

mod files;

use std::path::Path;

use treeline_checkpoint::{DflashConfig, TargetConfig};
use treeline_sim::profile::{
    self, Allreduce, Attention, Deployment, Drafter, DrafterKind, Engine, Execution, Hardware, Model, ProfileError,
    Quant, Sources, Unit,
};

fn here() -> &'static Path {
    Path::new(".")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles").join(path)).unwrap()
}

fn config(name: &str) -> (String, std::path::PathBuf) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/configs").join(name);
    (std::fs::read_to_string(&path).unwrap(), path)
}

fn sourced(name: &str, sources: &Sources) {
    assert!(sources.len() > 5, "{name}");
    for o in sources.iter() {
        assert!(o.source.len() > 5 && !o.source.contains("placeholder"), "{name}: {}: {}", o.key, o.source);
    }
}

#[test]
fn every_shipped_profile_is_read_and_says_where_it_comes_from() {
    let shipped = profile::shipped();
    let lists = [&shipped.hardware, &shipped.models, &shipped.drafters, &shipped.deployments];
    assert!(lists.iter().all(|l| l.is_sorted() && l.len() > 2));
    for name in &shipped.hardware {
        let p = profile::hardware(name, here()).unwrap();
        assert_eq!(p.name, *name);
        sourced(name, &p.sources);
        assert!(p.to_string().contains("hbm_bytes_s"));
    }
    for name in &shipped.models {
        let p = profile::model(name, here()).unwrap();
        assert_eq!(p.name, *name);
        sourced(name, &p.sources);
        assert!(p.to_string().contains("parameters"));
    }
    for name in &shipped.drafters {
        let p = profile::drafter(name, here()).unwrap();
        assert_eq!(p.name, *name);
        sourced(name, &p.sources);
        let target = if name.starts_with("kimi-k2.6") {
            "kimi-k2.6"
        } else if name.starts_with("kimi-k2.5") {
            "kimi-k2.5"
        } else {
            "qwen3-8b"
        };
        p.check_model(&profile::model(target, here()).unwrap()).unwrap();
        assert!(p.to_string().contains("drafts"));
    }
    for name in &shipped.deployments {
        let p = profile::deployment(name, here()).unwrap();
        assert_eq!(p.name, *name);
        sourced(name, &p.sources);
        let hardware = profile::hardware(&p.hardware, here()).unwrap();
        let model = if p.ranks == 1 { "qwen3-8b" } else { "kimi-k2.6" };
        p.check(&hardware, &profile::model(model, here()).unwrap()).unwrap();
        assert!(treeline_sim::experts::shipped().contains(&p.experts.as_str()), "{name}: {}", p.experts);
        let shown = p.to_string();
        assert!(shown.contains("tree attention:") && shown.contains("not modelled: NVFP4"), "{shown}");
    }
}

#[test]
fn shapes_agree_with_the_configs_that_they_cite() {
    let model = |file: &str| {
        let (text, path) = config(file);
        Model::from_config(&TargetConfig::from_json(&text, &path).unwrap(), "x").unwrap()
    };
    for (file, name) in [
        ("kimi_k25.json", "kimi-k2.5"),
        ("kimi_k25.json", "kimi-k2.6"),
        ("qwen3_8b.json", "qwen3-8b"),
        ("qwen3_30b_a3b.json", "qwen3-30b-a3b"),
    ] {
        let (read, mut shipped) = (model(file), profile::model(name, here()).unwrap());
        // A config may name a width for dense layers that the model does not have.
        shipped.name = read.name.clone();
        shipped.sources = read.sources.clone();
        assert_eq!(read, shipped, "{name}");
    }
    let drafter = |file: &str| {
        let (text, path) = config(file);
        Drafter::from_dflash(&DflashConfig::from_json(&text, &path).unwrap(), "x").unwrap()
    };
    for (file, name) in [
        ("dflash_kimi_k25.json", "kimi-k2.5-dflash"),
        ("dflash_kimi_k26.json", "kimi-k2.6-dflash"),
        ("dflash_qwen3_8b_b16.json", "qwen3-8b-dflash-b16"),
    ] {
        let (read, mut shipped) = (drafter(file), profile::drafter(name, here()).unwrap());
        shipped.name = read.name.clone();
        shipped.sources = read.sources.clone();
        assert_eq!(read, shipped, "{name}");
    }
}

#[test]
fn any_config_is_a_model_dense_or_not() {
    let read = |file: &str| {
        let (_, path) = config(file);
        profile::model(&path.display().to_string(), here())
    };
    let dense = read("llama_31_8b.json").unwrap();
    assert!(dense.moe.is_none() && dense.dense_layers == dense.layers);
    assert!((dense.params() / 8.03e9 - 1.0).abs() < 0.001, "{}", dense.params());
    let deepseek = read("deepseek_v3.json");
    // Its FP8 is not read by this project; without the field it is a bf16 model of 671 G parameters.
    if let Ok(model) = deepseek {
        assert!((model.params() / 671e9 - 1.0).abs() < 0.005, "{}", model.params());
        assert_eq!(model.dense_layers, 3);
    }
    let thinking = read("kimi_k2_thinking.json").unwrap();
    assert_eq!(thinking.moe.unwrap().quant, Quant::Int4);
    assert!(matches!(thinking.attention, Attention::Mla { kv_lora: 512, rope: 64, .. }));
    let windows = read("qwen3_windows.json").unwrap_err().to_string();
    assert!(windows.contains("attention window"), "{windows}");
}

#[test]
fn the_public_shape_of_the_bundled_pair_is_read_from_its_folder() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/models");
    let target = profile::model("./mini-target", &models).unwrap();
    let drafter = profile::drafter("./mini-dflash", &models).unwrap();
    drafter.check_model(&target).unwrap();
    assert_eq!((target.name.as_str(), target.moe.unwrap().experts, drafter.depth()), ("mini-target", 128, 7));
    let kimi = profile::model("kimi-k2.6", here()).unwrap();
    assert!(drafter.check_model(&kimi).unwrap_err().to_string().contains("trained for this model"));
}

#[test]
fn figures_that_others_rest_on() {
    let b300 = profile::hardware("b300-sxm6", here()).unwrap();
    assert_eq!((b300.sms, b300.hbm_bytes, b300.system.as_deref()), (148, 275_040 << 20, Some("b300")));
    let h200 = profile::hardware("h200-sxm", here()).unwrap();
    assert_eq!((h200.hbm_bytes_s, h200.bf16_flops, h200.hbm_bytes), (4.8e12, 989e12, 143_771 << 20));
    let eagle = profile::drafter("qwen3-8b-eagle3", here()).unwrap();
    assert!(matches!(eagle.kind, DrafterKind::Eagle { .. }) && eagle.head_params() > 0.0);
    let seed = profile::deployment("sglang-0.5.14-b300-tp8", here()).unwrap();
    let graphs = seed.graphs.as_ref().unwrap();
    assert_eq!((graphs.unit, graphs.padded_rows(9, 9 * 17)), (Unit::Requests, Some(10 * 17)));
    let eager = profile::deployment("sglang-0.5.14-b300-tp8-eager", here()).unwrap();
    assert_eq!((eager.execution, eager.graphs.is_none()), (Execution::Eager, true));
    let nvls = profile::deployment("sglang-0.5.14-b300-tp8-nvls", here()).unwrap();
    assert!(matches!(nvls.allreduce, Allreduce::Nvls { .. }));
    let vllm = profile::deployment("vllm-0.16-h200-tp8", here()).unwrap();
    let moe = vllm.tables.moe.unwrap();
    assert_eq!((vllm.version.as_str(), moe.engine, moe.version.as_str()), ("0.16", Engine::Vllm, "0.24.0"));
    let graphs = vllm.graphs.unwrap();
    assert_eq!((graphs.padded_rows(3, 250), graphs.padded_rows(40, 680)), (Some(256), None));
}

/// Reads a shipped text with one change and expects a message.
fn broken(kind: &str, file: &str, from: &str, to: &str, expect: &str) {
    let good = text(&format!("{kind}/{file}.toml"));
    let text = good.replacen(from, to, 1);
    assert_ne!(text, good, "{file}: {from}");
    let e = match kind {
        "hardware" => Hardware::from_toml(&text, "my.toml").map(drop),
        "models" => Model::from_toml(&text, "my.toml").map(drop),
        "drafters" => Drafter::from_toml(&text, "my.toml").map(drop),
        _ => Deployment::from_toml(&text, "my.toml").map(drop),
    };
    let shown = e.unwrap_err().to_string();
    assert!(shown.contains(expect) && shown.starts_with("my.toml:"), "{from} → {to}\n{shown}");
}

#[test]
fn what_is_wrong_in_a_hardware_file_is_named_with_its_line() {
    let b = |from: &str, to: &str, expect: &str| broken("hardware", "h200-sxm", from, to, expect);
    b("value = 4.8e12", "value = 0", "my.toml:6: `hbm_bytes_s`: is 0; it must be above zero");
    b("value = 4.8e12", "value = nan", "`hbm_bytes_s`: its value must be a finite number");
    b("value = 4.8e12", "value = -inf", "a finite number");
    b("value = 4.8e12", "value = \"fast\"", "a finite number");
    b("sms = {", "smss = {", "`sms`: missing: write `sms = { value = …, source = \"…\" }`");
    b("value = 132", "value = 132.5", "a whole number");
    b("value = 132", "value = -1", "a whole number");
    b("sms = { value = 132", "sms = { value = 132, unit = \"1\"", "has a key `unit` beside value and source");
    b("sms = { value = 132, source = \"CUDA device query on one H200\" }", "sms = 132", "must be written `sms = {");
    b("source = \"H200 datasheet\"", "source = \"\"", "its source must be a text");
    b("name = ", "colour = \"red\"\nname = ", "my.toml:1: `colour`: unknown key; this table has");
    b("value = 124", "value = 700", "`idle_w`: is 700 W, not below `board_w` = 700 W");
    b("value = 4.1e12", "value = 5e12", "`hbm_measured_bytes_s`: exceeds");
    b("value = 1979e12", "value = 900e12", "`fp8_flops`: is below `bf16_flops`");
    b("name = \"h200-sxm\"", "name = \"h200-sxm", "my.toml:1: not valid TOML");
    b("value = 150754820096", "value = 0", "`hbm_bytes`: is 0");
}

#[test]
fn what_is_wrong_in_a_model_or_drafter_file_is_named() {
    let m = |from: &str, to: &str, expect: &str| broken("models", "kimi-k2.6", from, to, expect);
    m("dense_layers = { value = 1", "dense_layers = { value = 62", "`dense_layers`: is 62, but `layers` is 61");
    m(
        "dense_layers = { value = 1",
        "dense_layers = { value = 61",
        "`moe`: describes experts, but every layer is dense",
    );
    m("dense_intermediate = { value = 18432", "dense_intermediate = { value = 0", "both or neither");
    m("top_k = { value = 8", "top_k = { value = 400", "`moe.top_k`: is 400, but there are 384 experts");
    m("int4-group32", "nvfp4", "NVFP4 is not modelled");
    m("kind = \"mla\"", "kind = \"mha\"", "`attention.kind`: \"mha\" is not known");
    m("layers = { value = 61", "layers = { value = 0", "from 1 to 4096");
    m("[attention]", "[attntion]", "`attention`: missing: write a table `[attention]`");
    broken(
        "models",
        "qwen3-8b",
        "dense_layers = { value = 36",
        "dense_layers = { value = 30",
        "no `[moe]` for the others",
    );
    broken(
        "models",
        "qwen3-8b",
        "kv_heads = { value = 8",
        "kv_heads = { value = 5",
        "32 heads cannot share 5 key heads",
    );
    let d = |from: &str, to: &str, expect: &str| broken("drafters", "kimi-k2.6-dflash", from, to, expect);
    d("block = { value = 8", "block = { value = 1", "`block`: is 1; it must be from 2 to 4096");
    d("window_layers = { value = 5", "window_layers = { value = 7", "`window_layers`: is 7, but `layers` is 6");
    d("window = { value = 2048", "window = { value = 0", "`window`: and `window_layers` belong together");
    d("kind = \"dflash\"", "kind = \"medusa\"", "\"medusa\" is not known");
    d("kind = \"dflash\"", "kind = \"eagle\"", "`steps`: missing");
}

#[test]
fn what_is_wrong_in_a_deployment_file_is_named() {
    let d = |from: &str, to: &str, expect: &str| broken("deployments", "vllm-0.16-h200-tp8", from, to, expect);
    d(
        "engine = \"vllm\"\nversion = \"0.16\"",
        "engine = \"vlm\"\nversion = \"0.16\"",
        "vllm, sglang, trtllm, treeline are",
    );
    d("ranks = { value = 8", "ranks = { value = 0", "`ranks`: is 0; it must be from 1 to 1024");
    d("value = \"graph\"", "value = \"eager\"", "`graphs`: belongs to `execution = \"graph\"`");
    d("sizes = { value = \"1 2 4 8..248/8", "sizes = { value = \"1 2 4 8..2/8", "`graphs.sizes`: must ascend");
    d("value = \"table\"", "value = \"ring\"", "`allreduce.algorithm`: \"ring\" is not known");
    d("value = \"table\"", "value = \"nvls\"", "`allreduce.alpha_us`: missing");
    d("value = [262144]", "value = [262144, 65536]", "`allreduce.switch_bytes`: must ascend");
    d("kv_bytes_per_element = { value = 2", "kv_bytes_per_element = { value = 3", "bf16 has 2, FP8 has 1");
    d("memory_fraction = { value = 0.9", "memory_fraction = { value = 1.1", "a share of at most 1");
    d("[tables.allreduce]", "[tables.allredce]", "unknown key");
    d(
        "[tables.allreduce]\nengine = \"vllm\"\nversion = { value = \"0.24.0\", source = \"0.14, 0.18, 0.19 and 0.24 agree within 2 % below 256 KiB\" }",
        "",
        "`tables.allreduce`: missing: `allreduce.algorithm` is \"table\"",
    );
    d("[tables.gemm]", "[tables.gem]", "`tables.gemm`: missing");
    d("host_ms = { value = 0.1", "host_ms = { value = -0.1", "must not be negative");
    d("kernel = \"hypothetical\"", "kernel = \"maybe\"", "`tree_attention.kernel`");
    d("not_modelled = [", "not_modelled = [1, ", "`not_modelled`: must be a list of texts");
}

#[test]
fn profiles_that_do_not_belong_together_are_refused() {
    let (kimi, h200) = (profile::model("kimi-k2.6", here()).unwrap(), profile::hardware("h200-sxm", here()).unwrap());
    let b300 = profile::deployment("sglang-0.5.14-b300-tp8", here()).unwrap();
    let shown = b300.check(&h200, &kimi).unwrap_err().to_string();
    assert!(shown.contains("is written for b300-sxm6, not for h200-sxm") && shown.contains("help:"), "{shown}");
    let mut deployment = profile::deployment("vllm-0.16-h200-tp8", here()).unwrap();
    deployment.ranks = 3;
    let shown = deployment.check(&h200, &kimi).unwrap_err().to_string();
    assert!(shown.contains("`ranks` = 3") && shown.contains("attention heads of kimi-k2.6: 64"), "{shown}");
    deployment.ranks = 16;
    assert!(deployment.check(&h200, &kimi).unwrap_err().to_string().contains("joins 8 GPUs"));
    let mut odd = kimi.clone();
    odd.vocab = 163_841;
    deployment.ranks = 8;
    assert!(deployment.check(&h200, &odd).unwrap_err().to_string().contains("vocabulary"));
}

#[test]
fn names_and_paths_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine.toml"), text("hardware/h200-sxm.toml").replace("\"h200-sxm\"", "\"mine\""))
        .unwrap();
    assert_eq!(profile::hardware("mine.toml", folder.path()).unwrap().name, "mine");
    assert_eq!(profile::hardware("./mine.toml", folder.path()).unwrap().name, "mine");
    let unknown = profile::hardware("mine", folder.path()).unwrap_err().to_string();
    assert!(unknown.contains("no hardware profile `mine` ships; b200-sxm, b300-sxm6, h200-sxm do"), "{unknown}");
    assert!(unknown.contains("help: for a file of your own write its path, `./mine.toml`"), "{unknown}");
    let missing = profile::deployment("./none.toml", folder.path()).unwrap_err();
    assert!(matches!(missing, ProfileError::Read { .. }) && missing.to_string().contains("none.toml"));
    std::fs::write(folder.path().join("large.toml"), "#".repeat(2 << 20)).unwrap();
    let large = profile::model("./large.toml", folder.path()).unwrap_err().to_string();
    assert!(large.contains("larger than"), "{large}");
}
