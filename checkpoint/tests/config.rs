//! Configs of every family: what they say is read; what is not honoured is refused by name.
//!
//! The files in `configs/` were written for these tests from the public facts of each model.

use std::path::Path;

use serde_json::{Value, json};
use treeline_checkpoint::{
    Attention, DflashConfig, Error, FactorSource, Family, Ffn, Gqa, Layer, Mla, Moe, RopeScaling, Router, TargetConfig,
};

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs").join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn parse(value: &Value) -> Result<TargetConfig, Error> {
    TargetConfig::from_json(&value.to_string(), Path::new("config.json"))
}

fn target(name: &str) -> TargetConfig {
    parse(&fixture(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn dflash(name: &str) -> DflashConfig {
    let text = fixture(name).to_string();
    DflashConfig::from_json(&text, Path::new("config.json")).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn kimi_moe() -> Moe {
    let router = Router::Sigmoid { n_group: 1, topk_group: 1, norm_topk: true, scaling: 2.827 };
    Moe { experts: 384, top_k: 8, intermediate: 2048, shared: 1, router }
}

#[test]
fn kimi_reads_the_same_in_all_three_forms() {
    for (name, family) in [
        ("kimi_k2_thinking", Family::KimiK2),
        ("kimi_k25", Family::KimiK25),
        ("kimi_k25_transformers5", Family::KimiK25),
    ] {
        let c = target(name);
        assert_eq!(c.family, family, "{name}");
        assert_eq!((c.hidden, c.vocab, c.layers.len(), c.tied, c.mtp_layers), (7168, 163_840, 61, false, 0), "{name}");
        assert_eq!(
            (c.rms_eps, c.max_positions, c.bos, &c.eos[..]),
            (1e-5, 262_144, Some(163_584), &[163_585][..]),
            "{name}"
        );
        assert_eq!(
            c.attention,
            Attention::Mla(Mla { heads: 64, q_lora: Some(1536), kv_lora: 512, nope: 128, rope: 64, v: 128 }),
            "{name}"
        );
        assert_eq!(c.layers[0], Layer { ffn: Ffn::Dense { intermediate: 18_432 }, window: None }, "{name}");
        assert!(c.layers[1..].iter().all(|l| l.ffn == Ffn::Moe(kimi_moe()) && l.window.is_none()), "{name}");
        assert!(c.rope.interleaved, "{name}");
        assert_eq!((c.rope.dim, c.rope.theta), (64, 50_000.0), "{name}");
        assert_eq!(
            (c.rope.attention_factor.value, c.rope.attention_factor.source),
            (1.0, FactorSource::MscaleRatio),
            "{name}"
        );
        // models.md: the softmax scale is × (1 + 0.1 ln 64)² = 2.005; transformers 5.24 gives the product 0.144680.
        assert!((c.rope.mla_scale_factor() - 2.0047).abs() < 1e-4, "{name}");
        assert!((c.softmax_scale() - 0.144_679_625_802_690_2).abs() < 1e-12, "{name}");
    }
}

#[test]
fn only_routed_experts_of_kimi_are_packed() {
    for (name, prefix) in
        [("kimi_k2_thinking", ""), ("kimi_k25", "language_model."), ("kimi_k25_transformers5", "language_model.")]
    {
        let c = target(name);
        assert_eq!(c.family.tensor_prefix(), prefix);
        let q = c.quantization.unwrap();
        for (module, packed) in [
            ("model.layers.1.mlp.experts.0.gate_proj", true),
            ("model.layers.60.mlp.experts.383.down_proj", true),
            ("model.layers.1.mlp.shared_experts.up_proj", false),
            ("model.layers.0.mlp.gate_proj", false),
            ("model.layers.0.mlp.down_proj", false),
            ("model.layers.7.self_attn.q_a_proj", false),
            ("lm_head", false),
        ] {
            assert_eq!(q.covers(&format!("{prefix}{module}")), packed, "{name}: {module}");
        }
    }
}

#[test]
fn deepseek_groups_and_prediction_layer() {
    let c = target("deepseek_v3");
    assert_eq!((c.family, c.mtp_layers, c.layers.len()), (Family::DeepseekV3, 1, 61));
    assert!(matches!(c.layers[2].ffn, Ffn::Dense { intermediate: 18_432 }));
    let router = Router::Sigmoid { n_group: 8, topk_group: 4, norm_topk: true, scaling: 2.5 };
    assert_eq!(c.layers[3].ffn, Ffn::Moe(Moe { experts: 256, top_k: 8, intermediate: 2048, shared: 1, router }));
    let c = target("deepseek_v3_transformers5");
    assert_eq!(c.attention, Attention::Mla(Mla { heads: 4, q_lora: None, kv_lora: 32, nope: 16, rope: 8, v: 16 }));
    assert_eq!((c.rope.scaling.clone(), c.rope.theta, c.eos.len()), (RopeScaling::None, 10_000.0, 0));
    assert_eq!((c.softmax_scale(), c.rope.attention_factor.source), (24f64.powf(-0.5), FactorSource::NoYarn));
    let mut halves = fixture("deepseek_v3_transformers5");
    halves["rope_interleave"] = json!(false);
    assert!(!parse(&halves).unwrap().rope.interleaved);
}

#[test]
fn qwen3_dense_and_windows() {
    let c = target("qwen3_8b");
    let gqa = Gqa { heads: 32, kv_heads: 8, head_dim: 128, qk_norm: true, bias: false };
    assert_eq!((c.family, c.hidden, c.vocab, c.attention), (Family::Qwen3, 4096, 151_936, Attention::Gqa(gqa)));
    assert_eq!(c.layers, vec![Layer { ffn: Ffn::Dense { intermediate: 12_288 }, window: None }; 36]);
    assert_eq!((c.rope.theta, c.rope.dim, c.rope.interleaved, c.rms_eps), (1e6, 128, false, 1e-6));
    let c = target("qwen3_windows");
    assert!(c.tied);
    assert_eq!(c.layers.iter().map(|l| l.window).collect::<Vec<_>>(), [None, None, Some(4096), Some(4096)]);
    assert_eq!(c.rope.attention_factor.source, FactorSource::YarnDefault);
    // The same without `layer_types`: `max_window_layers` decides.
    let mut old = fixture("qwen3_windows");
    old.as_object_mut().unwrap().remove("layer_types");
    assert_eq!(parse(&old).unwrap().layers, c.layers);
}

#[test]
fn qwen3_moe_layers() {
    let c = target("qwen3_30b_a3b");
    let moe = Moe { experts: 128, top_k: 8, intermediate: 768, shared: 0, router: Router::Softmax { norm_topk: true } };
    assert_eq!(c.layers, vec![Layer { ffn: Ffn::Moe(moe), window: None }; 48]);
    // Layers 1 and 5: every second one is sparse, but 3 is named dense.
    let c = target("qwen3_moe_transformers5");
    let sparse: Vec<_> = c.layers.iter().map(|l| matches!(l.ffn, Ffn::Moe(_))).collect();
    assert_eq!(sparse, [false, true, false, false, false, true]);
    assert!(matches!(&c.attention, Attention::Gqa(g) if g.head_dim == 64));
}

#[test]
fn llama_rope_and_ends() {
    let c = target("llama_31_8b");
    let gqa = Gqa { heads: 32, kv_heads: 8, head_dim: 128, qk_norm: false, bias: false };
    assert_eq!((c.attention, &c.eos[..]), (Attention::Gqa(gqa), &[128_001, 128_008, 128_009][..]));
    assert!(matches!(&c.rope.scaling, RopeScaling::Llama3(s) if s.factor == 8.0 && s.original == 8192.0));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), fixture("llama_31_8b").to_string()).unwrap();
    std::fs::write(dir.path().join("generation_config.json"), r#"{"eos_token_id": [128001, 7], "temperature": 0.6}"#)
        .unwrap();
    assert_eq!(TargetConfig::from_dir(dir.path()).unwrap().eos, [7, 128_001, 128_008, 128_009]);
}

#[test]
fn dflash_pairs() {
    let d = dflash("dflash_qwen3_8b_b16");
    assert_eq!(
        (d.block, d.mask_token, &d.target_layers[..], d.windows.len()),
        (16, 151_669, &[1, 9, 17, 25, 33][..], 5)
    );
    assert_eq!(d.rope.attention_factor.source, FactorSource::NoYarn);
    d.check_target(&target("qwen3_8b")).unwrap();

    let d = dflash("dflash_kimi_k26");
    assert_eq!((d.block, d.mask_token, &d.target_layers[..]), (8, 163_838, &[1, 12, 24, 35, 47, 58][..]));
    assert_eq!(d.windows, [Some(2048), Some(2048), Some(2048), Some(2048), Some(2048), None]);
    assert_eq!((d.attention.heads, d.attention.kv_heads, d.rope.dim, d.rope.interleaved), (64, 8, 128, false));
    assert_eq!((d.rms_eps, d.intermediate, d.non_causal), (1e-5, 18_432, true));
    d.check_target(&target("kimi_k25")).unwrap();
    let wrong = d.check_target(&target("qwen3_8b")).unwrap_err().to_string();
    assert!(wrong.contains("`hidden_size`: is 7168, but 4096"), "{wrong}");
}

#[test]
fn the_amplitude_of_kimis_drafter_is_the_trained_one_and_printed() {
    for name in ["dflash_kimi_k25", "dflash_kimi_k26"] {
        let d = dflash(name);
        assert!((d.rope.attention_factor.value - (1.0 + 0.1 * 64f64.ln())).abs() < 1e-12);
        assert_eq!(d.rope.attention_factor.source, FactorSource::DflashTraining);
        let shown = d.to_string();
        assert!(
            shown.contains("attention factor 1.4159 (YaRN: 1 + 0.1 ln factor, as the drafter was trained"),
            "{shown}"
        );
        let other = d.with_attention_factor(1.0);
        assert!(other.to_string().ends_with("attention factor 1.0000 (set by the caller)"));
    }
    let mut spelt = fixture("dflash_kimi_k25");
    spelt["rope_scaling"]["attention_factor"] = json!(1.25);
    let d = DflashConfig::from_json(&spelt.to_string(), Path::new("c")).unwrap();
    assert_eq!((d.rope.attention_factor.value, d.rope.attention_factor.source), (1.25, FactorSource::Config));
}

/// Frequencies and amplitude by transformers 5.24's rope utilities (f32).
#[test]
fn frequencies_equal_transformers() {
    let check = |name: &str, rope: &treeline_checkpoint::Rope, amplitude: f64, wanted: &[(usize, f64)]| {
        assert!((rope.attention_factor.value - amplitude).abs() < 1e-12, "{name}: {}", rope.attention_factor);
        let freq = rope.inv_freq();
        assert_eq!(freq.len(), rope.dim / 2);
        for (i, value) in wanted {
            assert!((freq[*i] / value - 1.0).abs() < 1e-6, "{name}[{i}]: {} instead of {value}", freq[*i]);
        }
    };
    let kimi = [
        (0, 1.0),
        (1, 0.7131111025810242),
        (8, 0.06687403470277786),
        (13, 0.007274119649082422),
        (16, 0.0015372966881841421),
        (21, 1.2886083823104855e-5),
        (31, 4.3822063844345394e-7),
    ];
    check("kimi", &target("kimi_k25").rope, 1.0, &kimi);
    let drafter =
        [(1, 0.844459056854248), (29, 0.0034389363136142492), (32, 0.0014705958310514688), (63, 3.700593822486553e-7)];
    check("drafter", &dflash("dflash_kimi_k26").rope, 1.0 + 0.1 * 64f64.ln(), &drafter);
    let qwen = [
        (16, 0.03162277862429619),
        (29, 0.0014051124453544617),
        (37, 0.00012993148993700743),
        (63, 3.102344408034696e-7),
    ];
    check("qwen", &target("qwen3_windows").rope, 1.138629436111989, &qwen);
    let llama = [
        (16, 0.03760603070259094),
        (29, 0.0021665706299245358),
        (32, 0.0005248460220173001),
        (63, 3.068925877869333e-7),
    ];
    check("llama", &target("llama_31_8b").rope, 1.0, &llama);
    let mut beta = fixture("kimi_k2_thinking");
    beta["rope_scaling"] = json!({"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0,
        "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 1.0});
    let equal = [
        (13, 0.012332281097769737),
        (16, 0.004472136031836271),
        (21, 2.577216764620971e-5),
        (31, 8.764412768869079e-7),
    ];
    check("equal betas", &parse(&beta).unwrap().rope, 0.9245892963555604, &equal);
    beta["rope_scaling"] =
        json!({"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": false});
    let ramp = [(13, 0.007570457179099321), (16, 0.0014773199800401926), (21, 2.577216764620971e-5)];
    check("no truncation", &parse(&beta).unwrap().rope, 1.3465735902799727, &ramp);
}
