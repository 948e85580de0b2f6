//! Configs of every family: what they say is read, what is not honoured is refused by name.

use std::path::Path;

use treeline_checkpoint::{Attention, TargetConfig};

#[test]
fn tiny() {
    let c = TargetConfig::from_json(r#"{"model_type":"llama","hidden_act":"silu","hidden_size":64,"vocab_size":100,"num_attention_heads":4,
     "num_hidden_layers":2,"intermediate_size":128,"rms_norm_eps":1e-5,"rope_theta":10000,"max_position_embeddings":128,"eos_token_id":[2,1,2]}"#, Path::new("config.json")).unwrap();
    assert!(matches!(&c.attention, Attention::Gqa(g) if g.kv_heads == 4 && g.head_dim == 16 && !g.qk_norm));
    assert_eq!(c.eos, [1, 2]);
}
