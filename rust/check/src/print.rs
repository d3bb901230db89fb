//! Prints: hashes of multisets of contributions that add up and shift.
//!
//! A contribution `(source, index)` prints as `h(source) · g^index` in two prime fields, a multiset as the sum. Two
//! multisets are equal when their prints are (a false match takes a root of a polynomial in both fields), however
//! they were put together; and the print of the next element of a run of elements is the print times `g`.

/// The Mersenne prime 2^61 − 1.
const P: u64 = (1 << 61) - 1;
/// An element of large order in each field.
const G: [u64; 2] = [0x0A5F_3C91_7D2B_46E3, 0x1337_9B0D_5C6E_81A7];

/// The print of a multiset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Print([u64; 2]);

impl Print {
    /// The print of something that is told apart by a number.
    pub(crate) fn of(seed: u64) -> Self {
        Self([mix(seed, 0x9E37_79B9_7F4A_7C15) % P, mix(seed, 0x2545_F491_4F6C_DD1D) % P])
    }

    /// The print of a list whose order matters.
    pub(crate) fn list(parts: impl IntoIterator<Item = u64>) -> Self {
        parts.into_iter().fold(Self::of(0), |sum, part| Self::of(sum.0[0] ^ mix(part, sum.0[1])))
    }

    /// Both halves.
    pub(crate) fn words(self) -> [u64; 2] {
        self.0
    }

    /// The print of the union.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| reduce(self.0[i] + other.0[i])))
    }

    /// The print of the same multiset of another call's contributions.
    pub(crate) fn of_call(self, call: u32) -> Self {
        if call == 0 {
            return self;
        }
        let factor = Self::of(u64::MAX - u64::from(call));
        Self(std::array::from_fn(|i| times(self.0[i], factor.0[i])))
    }

    /// The print `by` elements further on.
    pub(crate) fn shifted(self, by: i64) -> Self {
        if by == 0 {
            return self;
        }
        // g has an order that divides P - 1: going back is going forth by the rest.
        let exponent = by.rem_euclid(P as i64 - 1) as u64;
        Self(std::array::from_fn(|i| times(self.0[i], power(G[i], exponent))))
    }
}

fn reduce(x: u64) -> u64 {
    if x >= P { x - P } else { x }
}

fn times(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    reduce((wide & u128::from(P)) as u64 + (wide >> 61) as u64)
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = times(result, base);
        }
        base = times(base, base);
        exponent >>= 1;
    }
    result
}

/// Rounds of a 64-bit mixer.
pub(crate) fn mix(x: u64, seed: u64) -> u64 {
    let mut z = x.wrapping_add(seed);
    for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0xBF58_476D_1CE4_E5B9] {
        z = (z ^ z >> 30).wrapping_mul(factor);
        z ^= z >> 27;
    }
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Union is a commutative group, shifts distribute over it and undo each other, and calls are told apart.
        #[test]
        fn prints_add_up_and_shift(
            a: u64, b: u64, c: u64, d in -1_000_000i64..1_000_000, e in -1_000_000i64..1_000_000, call in 1..16u32
        ) {
            let (a, b, c) = (Print::of(a), Print::of(b), Print::of(c));
            prop_assert_eq!(a.plus(b), b.plus(a));
            prop_assert_eq!(a.plus(b).plus(c), a.plus(b.plus(c)));
            prop_assert_eq!(a.plus(b).shifted(d), a.shifted(d).plus(b.shifted(d)));
            prop_assert_eq!(a.shifted(d).shifted(e), a.shifted(d + e));
            prop_assert_eq!(a.shifted(d).shifted(-d), a);
            prop_assert_eq!(a.plus(b.shifted(d)).of_call(call), a.of_call(call).plus(b.of_call(call).shifted(d)));
            prop_assert_ne!(a.of_call(call), a);
        }
    }
}
