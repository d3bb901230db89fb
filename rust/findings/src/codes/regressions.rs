//! R: runs that became worse.

use super::{Code, row};

#[rustfmt::skip]
pub(super) const CODES: &[Code] = &[
    row("AHBM-R101", "a measurement is slower than in the baseline",
        "a change made an algorithm slower",
        "find out what changed with `ahbm compare`, or renew the baseline"),
    row("AHBM-R102", "a measurement gives a wrong result",
        "a change made a result wrong",
        "correct it first: `ahbm run --check all` says where"),
    row("AHBM-R103", "a measurement of the baseline was not made",
        "the baseline has a size that this run left out",
        "measure the same sizes, or renew the baseline"),
];
