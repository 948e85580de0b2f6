//! Room for the KV of the requests that run.

use crate::memory::{DoesNotFit, Room};

/// What one request may come to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    /// Tokens of context and response.
    pub tokens: u32,
    /// Rows of a tree, root included.
    pub rows: u32,
}

/// KV of the running requests against the room that there is. A request holds, from its admission to its end, what it may
/// grow to: no request is ever thrown out again.
#[derive(Debug, Clone)]
pub(super) struct Kv {
    room: Option<Room>,
    /// Bytes held, by slot.
    held: Vec<f64>,
}

impl Kv {
    /// Room for up to `slots` of the requests with these needs.
    ///
    /// # Errors
    /// [`DoesNotFit`] when not even the smallest `slots` requests fit side by side: the cap is out of reach.
    pub fn new(room: Option<Room>, slots: u32, needs: &[Need]) -> Result<Self, DoesNotFit> {
        if let Some(room) = &room {
            let mut sorted = needs.to_vec();
            sorted.sort_unstable_by_key(|n| n.tokens);
            sorted.truncate(slots as usize);
            let bytes = || sorted.iter().map(|n| room.request_bytes(n.tokens, n.rows));
            let needed: f64 = bytes().sum();
            if needed > room.kv_room_bytes {
                let sums = bytes().scan(0.0, |sum, b| {
                    *sum += b;
                    Some(*sum)
                });
                let tokens: u64 = sorted.iter().map(|n| u64::from(n.tokens)).sum();
                return Err(DoesNotFit::Cache {
                    concurrency: sorted.len() as u32,
                    context: (tokens / sorted.len().max(1) as u64) as u32,
                    rows: sorted.first().map_or(1, |n| n.rows),
                    needed_bytes: needed.ceil() as u64,
                    room_bytes: room.kv_room_bytes as u64,
                    missing_bytes: (needed - room.kv_room_bytes).ceil() as u64,
                    largest_cap: sums.take_while(|sum| *sum <= room.kv_room_bytes).count() as u32,
                });
            }
        }
        Ok(Self { room, held: vec![0.0; slots as usize] })
    }

    /// Whether this fits beside what runs.
    pub fn fits(&self, need: Need) -> bool {
        let held: f64 = self.held.iter().sum();
        self.room.as_ref().is_none_or(|room| held + room.request_bytes(need.tokens, need.rows) <= room.kv_room_bytes)
    }

    /// Whether this would fit if nothing else ran.
    pub fn ever_fits(&self, need: Need) -> bool {
        self.room.as_ref().is_none_or(|room| room.request_bytes(need.tokens, need.rows) <= room.kv_room_bytes)
    }

    /// A request takes its room.
    pub fn take(&mut self, slot: u32, need: Need) {
        self.held[slot as usize] = self.room.as_ref().map_or(0.0, |room| room.request_bytes(need.tokens, need.rows));
    }

    /// A request gives it back.
    pub fn free(&mut self, slot: u32) {
        self.held[slot as usize] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Weights;

    /// 10 bytes a token, pages of one token.
    fn room(bytes: f64) -> Room {
        Room {
            usable_bytes: bytes,
            weights: Weights::default(),
            drafter_bytes: 0.0,
            reserve_bytes: 0.0,
            kv_room_bytes: bytes,
            kv_bytes_per_token: 10.0,
            drafter_kv_bytes_per_token: 0.0,
            window_kv_bytes_per_token: 0.0,
            window: 0,
            page_tokens: 1,
            tokens: (bytes / 10.0) as u64,
        }
    }

    fn need(tokens: u32) -> Need {
        Need { tokens, rows: 5 }
    }

    #[test]
    fn a_cap_out_of_reach_is_refused_with_what_is_missing_and_the_largest_that_fits() {
        assert!(Kv::new(Some(room(1000.0)), 4, &[need(20); 9]).is_ok());
        let refused = Kv::new(Some(room(999.0)), 4, &[need(20); 9]).unwrap_err();
        assert_eq!((refused.missing_bytes(), refused.largest_cap()), (1, 3), "{refused}");
        // Fewer requests than slots never fill them; a cap that only short requests reach is within reach.
        assert!(Kv::new(Some(room(500.0)), 4, &[need(20); 2]).is_ok());
        assert!(Kv::new(Some(room(500.0)), 2, &[need(900), need(20), need(20)]).is_ok());
        let none = Kv::new(Some(room(5.0)), 2, &[need(20); 9]).unwrap_err();
        assert_eq!(none.largest_cap(), 0, "{none}");
        assert!(Kv::new(None, 4, &[need(u32::MAX); 4]).is_ok());
    }

    #[test]
    fn room_is_taken_and_given_back() {
        let mut kv = Kv::new(Some(room(1000.0)), 3, &[need(20); 3]).unwrap();
        kv.take(0, need(55));
        kv.take(2, need(25));
        assert!(kv.fits(need(5)) && !kv.fits(need(6)) && kv.ever_fits(need(95)) && !kv.ever_fits(need(96)));
        kv.free(0);
        assert!(kv.fits(need(65)) && !kv.fits(need(66)));
    }
}
