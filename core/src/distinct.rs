//! Whether keys differ, without sorting them.

/// Slots of the table; a key is looked for from the slot of its hash on.
const SLOTS: usize = 256;

/// Keys that still leave runs short.
const MOST: usize = SLOTS * 3 / 4;

/// Marks an empty slot; no key may have this value.
const EMPTY: u64 = u64::MAX;

/// Whether all `keys` differ (none may be `u64::MAX`). Exact; nothing is allocated up to 192 keys.
pub(crate) fn all_differ(keys: impl ExactSizeIterator<Item = u64>) -> bool {
    if keys.len() > MOST {
        let mut sorted: Vec<u64> = keys.collect();
        sorted.sort_unstable();
        return sorted.windows(2).all(|w| w[0] != w[1]);
    }
    let mut table = [EMPTY; SLOTS];
    for key in keys {
        // The multiplier of Fibonacci hashing: its top bits mix all bits of the key.
        let mut at = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize;
        loop {
            if table[at] == EMPTY {
                table[at] = key;
                break;
            }
            if table[at] == key {
                return false;
            }
            at = (at + 1) % SLOTS;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repeat_is_found_wherever_it_is() {
        for len in [0usize, 1, 2, 64, 191, 192, 193, 500] {
            // Keys that share low bits, high bits, and neighbours.
            for scale in [1u64, 1 << 32, 0x1_0000_0001] {
                let keys: Vec<u64> = (0..len as u64).map(|k| k * scale).collect();
                assert!(all_differ(keys.iter().copied()), "{len} {scale}");
                for (i, j) in [(0, 1), (0, len.max(1) - 1), (len / 2, len.max(1) - 1)] {
                    if i < j && j < len {
                        let mut keys = keys.clone();
                        keys[j] = keys[i];
                        assert!(!all_differ(keys.iter().copied()), "{len} {scale} {i} {j}");
                    }
                }
            }
        }
    }
}
