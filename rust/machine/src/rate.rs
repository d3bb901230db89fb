//! Bandwidth as integer arithmetic: bytes to picoseconds without floats on the hot path.

/// Picoseconds; all virtual time is counted in these.
pub type Ps = u64;

/// Time per byte in 1/2^32 picoseconds, rounded up, so that a transfer is never faster than
/// `bytes / bandwidth`. The zero rate costs nothing (unlimited bandwidth).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate(u64);

impl Rate {
    /// No serialisation cost.
    pub const UNLIMITED: Rate = Rate(0);

    /// From GB/s (1e9 bytes per second, that is bytes per ns). Infinity is [`Rate::UNLIMITED`].
    ///
    /// Returns `None` unless `gbs` is positive and at least 1e-6.
    pub fn from_gbs(gbs: f64) -> Option<Self> {
        if gbs == f64::INFINITY {
            return Some(Self::UNLIMITED);
        }
        if !(gbs.is_finite() && gbs >= 1e-6) {
            return None;
        }
        let fixed = (1000.0 / gbs) * 4_294_967_296.0;
        Some(Self((fixed.ceil() as u64).max(1)))
    }

    /// Time to move `bytes`, rounded up to a whole picosecond.
    #[inline]
    pub fn ps(self, bytes: u64) -> Ps {
        let wide = u128::from(bytes) * u128::from(self.0);
        let whole = (wide >> 32) as u64;
        whole + u64::from(wide as u32 != 0)
    }

    /// True when nothing is charged per byte.
    #[inline]
    pub fn is_unlimited(self) -> bool {
        self.0 == 0
    }

    /// Bandwidth in GB/s, for display.
    pub fn gbs(self) -> f64 {
        if self.0 == 0 { f64::INFINITY } else { 1000.0 * 4_294_967_296.0 / self.0 as f64 }
    }

    /// The slower of two rates.
    #[must_use]
    pub fn slower(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// The quicker of two rates.
    #[must_use]
    pub fn quicker(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

/// Nanoseconds to picoseconds, rounded to the nearest. `None` when negative, not finite or above 10^15 ns.
pub fn ns_to_ps(ns: f64) -> Option<Ps> {
    (ns.is_finite() && (0.0..=1e15).contains(&ns)).then(|| (ns * 1000.0).round() as Ps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact() {
        let r = Rate::from_gbs(128.0).unwrap();
        assert_eq!(r.ps(128), 1000);
        assert_eq!(r.ps(65536), 512_000);
        assert_eq!(Rate::from_gbs(50.0).unwrap().ps(1 << 20), 20 * (1 << 20));
        assert_eq!(Rate::UNLIMITED.ps(u64::MAX), 0);
    }

    #[test]
    fn never_faster_than_the_bandwidth() {
        for gbs in [0.1, 3.0, 7.7, 48.0, 53.687_091_2, 900.0] {
            let r = Rate::from_gbs(gbs).unwrap();
            for bytes in [1u64, 7, 4096, 1 << 30] {
                assert!(r.ps(bytes) as f64 >= bytes as f64 * 1000.0 / gbs - 1e-3);
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for gbs in [0.0, -1.0, f64::NAN] {
            assert!(Rate::from_gbs(gbs).is_none());
        }
        assert_eq!(ns_to_ps(-1.0), None);
        assert_eq!(ns_to_ps(0.0125), Some(13));
    }
}
