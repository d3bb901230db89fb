//! Schedules of synthesizers: which piece crosses which link in which order, as plans.
//!
//! | producer | file | what it says |
//! |---|---|---|
//! | TACOS 1.1 | `.csv` | per link the chunks in order; an all-gather, chunk `c` is rank `c mod n`'s |
//! | TE-CCL | `.json`, `"8-Chunk paths"` | per demand the hops with their epochs, through switches as if they were wires |
//! | SCCL, TACCL | `.json`, `"msccl_type"` or `"sccl_type"` | the collective by pre- and post-conditions, steps of sends |
//!
//! The order of sending on a link is part of a schedule. Latencies and bandwidths in a file describe the machine it was
//! made for; a plan runs on the machine it is given.
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-F175` | fewer links than stated (a warning) |
//! | `AHBM-F180` | not a schedule of this kind |
//! | `AHBM-F181` | a rank sends what it does not have at that point |
//! | `AHBM-U295` | a schedule of something that no plan says |

mod moves;
mod sccl;
mod tacos;
mod teccl;

use crate::scan::told;
use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Plan};

/// A synthesizer whose schedules can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Producer {
    /// Link-ordered chunks.
    Tacos,
    /// Flows by epoch.
    Teccl,
    /// Steps of sends.
    Sccl,
}

impl Producer {
    /// Name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tacos => "tacos_csv",
            Self::Teccl => "teccl_json",
            Self::Sccl => "sccl_json",
        }
    }

    /// The producer of a JSON document, by the first key of its top level that says so, wherever it stands; None for what
    /// is no schedule.
    pub fn of_json(bytes: &[u8]) -> Option<Self> {
        told(bytes, |key| match key {
            b"msccl_type" | b"sccl_type" | b"steps" => Some(Some(Self::Sccl)),
            b"0-Collective" | b"1-Epoch_Duration" | b"8-Chunk paths" => Some(Some(Self::Teccl)),
            // An execution plan: what follows is long.
            b"gpus" => Some(None),
            _ => None,
        })?
    }

    /// Reads a schedule. `file` names it in findings and origins.
    ///
    /// # Errors
    /// `AHBM-B2xx` over the budget, `AHBM-F180`, `AHBM-F181`, `AHBM-U295`, and `AHBM-U293` for sizes that a plan has no
    /// numbers for.
    pub fn read(self, bytes: &[u8], file: &str, budget: &Budget) -> Result<Plan, Diagnostic> {
        let moves = match self {
            Self::Tacos => tacos::read(bytes, file, budget),
            Self::Teccl => teccl::read(bytes, file, budget),
            Self::Sccl => sccl::read(bytes, file, budget),
        }?;
        moves.into_plan(file, budget)
    }
}

fn malformed(file: &str, place: impl std::fmt::Display, what: impl Into<String>) -> Diagnostic {
    Diagnostic::new("AHBM-F180", what).site("schedule", format!("{file}{place}"))
}
