//! Room for the KV of the requests that run.

use super::{BatchError, KvRoom};

/// KV of the running requests against the room that there is. A request holds, from its admission to its end, what it may
/// grow to: no request is ever thrown out again.
#[derive(Debug, Clone)]
pub(super) struct Kv {
    room: Option<KvRoom>,
    /// Tokens held, by slot.
    held: Vec<u64>,
    used: u64,
}

impl Kv {
    /// Room for up to `slots` of the requests that need `tokens` each.
    ///
    /// # Errors
    /// [`BatchError::DoesNotFit`] when not even the smallest `slots` requests fit side by side: the cap is out of reach.
    pub fn new(room: Option<KvRoom>, slots: u32, tokens: &[u64]) -> Result<Self, BatchError> {
        if let Some(room) = room {
            if !(room.per_token.is_finite() && room.per_token > 0.0) {
                let value = room.per_token.to_string();
                return Err(BatchError::Value { key: "kv.per_token", value, rule: "bytes per token must be above 0" });
            }
            let mut sorted = tokens.to_vec();
            sorted.sort_unstable();
            sorted.truncate(slots as usize);
            let sum = sorted.iter().sum::<u64>();
            let need = bytes(sum, room);
            if need > room.bytes {
                let mut left = room.bytes;
                let fits = |&&t: &&u64| {
                    let fits = bytes(t, room) <= left;
                    left = left.saturating_sub(bytes(t, room));
                    fits
                };
                return Err(BatchError::DoesNotFit {
                    concurrency: sorted.len() as u32,
                    tokens: sum / sorted.len().max(1) as u64,
                    missing_bytes: need - room.bytes,
                    largest_cap: sorted.iter().take_while(fits).count() as u32,
                });
            }
        }
        Ok(Self { room, held: vec![0; slots as usize], used: 0 })
    }

    /// Whether `tokens` more fit beside what runs.
    pub fn fits(&self, tokens: u64) -> bool {
        self.room.is_none_or(|room| bytes(self.used + tokens, room) <= room.bytes)
    }

    /// Whether `tokens` would fit if nothing else ran.
    pub fn ever_fits(&self, tokens: u64) -> bool {
        self.room.is_none_or(|room| bytes(tokens, room) <= room.bytes)
    }

    /// A request takes its room.
    pub fn take(&mut self, slot: u32, tokens: u64) {
        self.used += tokens;
        self.held[slot as usize] = tokens;
    }

    /// A request gives it back.
    pub fn free(&mut self, slot: u32) {
        self.used -= std::mem::take(&mut self.held[slot as usize]);
    }
}

fn bytes(tokens: u64, room: KvRoom) -> u64 {
    // Casts saturate, so an absurd length is merely too long.
    (tokens as f64 * room.per_token).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_out_of_reach_is_refused_with_what_is_missing_and_the_largest_that_fits() {
        let room = |bytes| Some(KvRoom { bytes, per_token: 10.0 });
        assert!(Kv::new(room(1000), 4, &[25; 9]).is_ok());
        let refused = Kv::new(room(999), 4, &[25; 9]).unwrap_err();
        let expected = BatchError::DoesNotFit { concurrency: 4, tokens: 25, missing_bytes: 1, largest_cap: 3 };
        assert_eq!(refused, expected);
        // Fewer requests than slots never fill them; a cap that only short requests reach is within reach.
        assert!(Kv::new(room(500), 4, &[25; 2]).is_ok());
        assert!(Kv::new(room(500), 2, &[900, 25, 25]).is_ok());
        let none = Kv::new(room(5), 2, &[25; 9]).unwrap_err();
        assert!(matches!(none, BatchError::DoesNotFit { largest_cap: 0, .. }), "{none}");
        assert!(Kv::new(None, 4, &[u64::MAX / 8; 4]).is_ok());
    }

    #[test]
    fn room_is_taken_and_given_back() {
        let mut kv = Kv::new(Some(KvRoom { bytes: 100, per_token: 1.0 }), 3, &[30; 3]).unwrap();
        kv.take(0, 60);
        kv.take(2, 30);
        assert!(kv.fits(10) && !kv.fits(11) && kv.ever_fits(100) && !kv.ever_fits(101));
        kv.free(0);
        assert!(kv.fits(70) && !kv.fits(71));
    }
}
