//! Seeded draws: the same seed gives the same run, everywhere and for ever.

use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True in one of `n` draws.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Uniform between the two, in milliseconds, both ends included.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let (low, high) = (low.as_millis() as u64, high.as_millis() as u64);
        Duration::from_millis(low + self.below(high - low + 1))
    }
}

/// A draw in -1 ..= 1 that depends on the seed and on the time alone, so that a model can make the same one.
pub fn jitter_at(seed: u64, since_start: Duration) -> f64 {
    let bits = mix(seed ^ (since_start.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (bits >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
