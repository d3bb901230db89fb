//! I: work that nobody wants any more.

use super::{Code, row};

#[rustfmt::skip]
pub(super) const CODES: &[Code] = &[
    row("AHBM-I101", "interrupted",
        "Ctrl-C",
        "start it again; the message says how far it came"),
];
