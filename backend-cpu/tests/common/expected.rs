//! What a fixture's maker expects, as parity tests of every engine read it.

use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::Path;

/// Tensors of a fixture's `expected.safetensors`.
pub struct Expected {
    ints: BTreeMap<String, Vec<i32>>,
    floats: BTreeMap<String, Vec<f32>>,
}

impl Expected {
    /// Reads them from the fixture's folder.
    pub fn read(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join("expected.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let (mut ints, mut floats) = (BTreeMap::new(), BTreeMap::new());
        for (key, view) in tensors.tensors() {
            let words = || view.data().as_chunks::<4>().0.iter().copied();
            match view.dtype() {
                safetensors::Dtype::F32 => drop(floats.insert(key, words().map(f32::from_le_bytes).collect())),
                safetensors::Dtype::I32 => drop(ints.insert(key, words().map(i32::from_le_bytes).collect())),
                other => panic!("{key}: {other:?}"),
            }
        }
        Self { ints, floats }
    }

    pub fn has(&self, key: &str) -> bool {
        self.ints.contains_key(key)
    }

    /// Unsigned numbers; a root's parent −1 becomes 0.
    pub fn ids(&self, key: &str) -> Vec<u32> {
        self.ints[key].iter().map(|&x| x.max(0) as u32).collect()
    }

    pub fn floats(&self, key: &str) -> &[f32] {
        &self.floats[key]
    }
}
