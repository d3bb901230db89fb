//! Random delays.

use crate::{PeId, Ps};

/// Random delays. Each depends on the seed and on what is delayed alone, never on times, so a machine that is quicker
/// elsewhere has the same delays; and a delay grows with its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter {
    /// Chooses among the delays.
    pub seed: u64,
    /// A message arrives up to so much later, in ps.
    pub latency_ps: Ps,
    /// A PE starts up to so much later than the launch, in ps.
    pub skew_ps: Ps,
}

impl Jitter {
    /// How much later message `number` of stream `stream` arrives.
    #[inline]
    pub fn latency(&self, stream: u32, number: u32) -> Ps {
        self.draw(u64::from(stream) << 1, number, self.latency_ps)
    }

    /// How much later a PE starts.
    pub fn skew(&self, pe: PeId) -> Ps {
        self.draw(1, pe.0, self.skew_ps)
    }

    /// 0 to `limit`: SplitMix64 over the seed and two coordinates (Steele, Lea, Flood 2014), scaled.
    fn draw(&self, a: u64, b: u32, limit: Ps) -> Ps {
        if limit == 0 {
            return 0;
        }
        let gamma = 0x9e37_79b9_7f4a_7c15;
        let place = a.wrapping_add(1).wrapping_mul(gamma) ^ u64::from(b).wrapping_mul(0xd1b5_4a32_d192_ed03);
        let mixed = self.seed.wrapping_mul(gamma) ^ place;
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = mixed ^ (mixed >> 31);
        ((u128::from(drawn) * (u128::from(limit) + 1)) >> u64::BITS) as Ps
    }
}
