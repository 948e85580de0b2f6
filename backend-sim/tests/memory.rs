//! What fits: published sizes, refusals that say what is missing.

use std::path::Path;

use treeline_sim::memory::{DoesNotFit, Room, Weights, room};
use treeline_sim::profile::{self, Deployment, Drafter, Hardware, Model};

fn here() -> &'static Path {
    Path::new(".")
}

fn kimi() -> Model {
    profile::model("kimi-k2.6", here()).unwrap()
}

fn dflash() -> Drafter {
    profile::drafter("kimi-k2.6-dflash", here()).unwrap()
}

fn on(deployment: &str) -> (Deployment, Hardware) {
    let deployment = profile::deployment(deployment, here()).unwrap();
    let hardware = profile::hardware(&deployment.hardware, here()).unwrap();
    (deployment, hardware)
}

fn room_on(deployment: &str, drafter: Option<&Drafter>) -> Room {
    let (deployment, hardware) = on(deployment);
    room(&kimi(), drafter, &deployment, &hardware).unwrap()
}

fn near(got: f64, wanted: f64, tolerance: f64) {
    assert!((got / wanted - 1.0).abs() < tolerance, "{got} against {wanted}");
}

#[test]
fn sizes_of_the_checkpoint_are_met() {
    let model = kimi();
    near(model.params(), 1.04e12, 0.015);
    near(model.bytes(), 594e9, 0.005);
    let moe = model.moe.unwrap();
    near(moe.expert_params(model.hidden), 44.04e6, 1e-3);
    near(moe.expert_bytes(model.hidden), 24.77e6, 1e-3);
    near(model.attention.replicated_params(model.hidden), 15.1e6, 5e-3);
    near(model.attention.replicated_params(model.hidden) + model.attention.split_params(model.hidden), 101.1e6, 1e-3);
    near(model.attention.params_per_rank(model.hidden, 8) * 2.0, 51.8e6, 1e-3);
    assert_eq!(model.kv_elements() * 2.0, 70_272.0);
    let one = Weights::of(&model, 8);
    near(one.shared, 0.66e9, 0.005);
    near(one.router, 0.33e9, 0.005);
    near(one.dense, 0.10e9, 0.02);
    near(one.vocabulary, 2.0 * 0.29e9, 0.02);
    // The published count with its norms: two of the width and two of a head in each layer, two more of the width.
    let norms = 6.0 * (2.0 * 7168.0 + 2.0 * 128.0) + 2.0 * 7168.0;
    assert_eq!(dflash().params() + norms, 3_479_277_056.0);
}

#[test]
fn room_for_the_cache_is_as_published() {
    let h200 = room_on("vllm-0.16-h200-tp8", None);
    near(h200.kv_room_bytes, 59e9, 0.02);
    near(h200.tokens as f64, 0.83e6, 0.01);
    for name in ["vllm-0.24-b300-tp8", "sglang-0.5.14-b300-tp8"] {
        near(room_on(name, None).tokens as f64, 2.6e6, 0.015);
    }
}

#[test]
fn four_ranks_of_h200_hold_no_more_than_about_55_layers() {
    let (mut deployment, hardware) = on("vllm-0.24-h200-tp8");
    deployment.ranks = 4;
    let e = room(&kimi(), None, &deployment, &hardware).unwrap_err();
    let DoesNotFit::Weights { layers, of, missing_bytes, .. } = &e else { panic!("{e}") };
    assert!((53..=56).contains(layers) && *of == 61, "{layers} of {of}");
    let mut model = kimi();
    model.layers = *layers;
    assert!(room(&model, None, &deployment, &hardware).is_ok(), "what is said to fit fits");
    model.layers += 1;
    assert!(room(&model, None, &deployment, &hardware).is_err(), "and no more");
    let shown = e.to_string();
    assert!(
        shown.contains("kimi-k2.6") && shown.contains("61 layers") && shown.contains("help: use more ranks"),
        "{shown}"
    );
    // What is missing, given, is enough.
    let mut larger = hardware.clone();
    larger.hbm_bytes += (*missing_bytes as f64 / deployment.memory_fraction).ceil() as u64;
    assert!(room(&kimi(), None, &deployment, &larger).is_ok());
}

#[test]
fn a_latent_cache_is_whole_on_each_rank_and_grouped_heads_are_split() {
    let (deployment, hardware) = on("vllm-0.24-h200-tp8");
    let (model, qwen) = (kimi(), profile::model("qwen3-8b", here()).unwrap());
    let per_token = |m: &Model, ranks: u32| {
        let mut d = deployment.clone();
        d.ranks = ranks;
        room(m, None, &d, &hardware).unwrap().kv_bytes_per_token
    };
    assert_eq!(per_token(&model, 8), 70_272.0);
    assert_eq!(per_token(&qwen, 1), 147_456.0);
    assert_eq!(per_token(&qwen, 8), 147_456.0 / 8.0);
    assert_eq!(per_token(&qwen, 16), 147_456.0 / 8.0, "a head cannot be split");
}

#[test]
fn the_drafter_costs_its_weights_and_its_cache() {
    let (without, with) = (room_on("sglang-0.5.14-b300-tp8", None), room_on("sglang-0.5.14-b300-tp8", Some(&dflash())));
    near(with.drafter_bytes, 3.479e9 * 2.0 / 8.0, 1e-3);
    assert!(with.tokens < without.tokens);
    // One layer sees everything, five see 2048 tokens; one key head of 128 a rank, keys and values, bf16.
    assert_eq!((with.drafter_kv_bytes_per_token, with.window_kv_bytes_per_token), (512.0, 5.0 * 512.0));
    assert_eq!(with.request_bytes(8192 - 64, 64), 8192.0 * (70_272.0 + 512.0) + 2048.0 * 5.0 * 512.0);
}

#[test]
fn a_load_that_does_not_fit_says_how_much_and_what_would() {
    let room = room_on("sglang-0.5.14-b300-tp8", Some(&dflash()));
    // The service of this project's seed crashed when its cap went from 128 to 256.
    assert!(room.fit(128, 16_384, 17).is_ok());
    let e = room.fit(256, 16_384, 17).unwrap_err();
    let cap = e.largest_cap();
    assert!((129..256).contains(&cap), "{e}");
    assert!(room.fit(cap, 16_384, 17).is_ok() && room.fit(cap + 1, 16_384, 17).is_err());
    let needed = 256.0 * room.request_bytes(16_384, 17);
    near(e.missing_bytes() as f64, needed - room.kv_room_bytes, 1e-6);
    let shown = e.to_string();
    assert!(
        shown.contains(&format!("the largest concurrency that fits is {cap}")) && shown.contains("missing"),
        "{shown}"
    );
    // Rows of a tree have their entries until the walk, in whole pages.
    assert!(room.request_bytes(1024, 65) > room.request_bytes(1024, 1));
    assert_eq!(room.request_bytes(1024, 1), room.request_bytes(1024, 64));
    assert_eq!(room.fit(1, 4_000_000, 1).unwrap_err().largest_cap(), 0);
}

#[test]
fn the_listing_adds_up() {
    let room = room_on("vllm-0.24-b300-tp8", Some(&dflash()));
    let used = room.weights.total() + room.drafter_bytes + room.reserve_bytes + room.kv_room_bytes;
    assert!((used / room.usable_bytes - 1.0).abs() < 1e-12);
    let shown = room.to_string();
    assert!(shown.contains("left for the cache") && shown.contains(&room.tokens.to_string()), "{shown}");
}
