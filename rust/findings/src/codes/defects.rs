//! Z: defects of this project.

use super::{Code, row};

#[rustfmt::skip]
pub(super) const CODES: &[Code] = &[
    row("AHBM-Z001", "internal error: a defect of AHBM, please report it",
        "never, unless AHBM is at fault",
        "report it, with the command that led to it"),
];
