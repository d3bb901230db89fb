//! Columns for a selector that learns: what an algorithm and a call look like before anything has run.
//!
//! [`Algorithm`] is read off a program, [`Job`] off a training job, [`Fingerprint`] off a machine; none simulates. `docs/features.md` has every
//! column with its unit and formula.

mod algorithm;
mod job;
mod machine;
mod ways;

pub use algorithm::Algorithm;
pub(crate) use algorithm::{is_far, stuck};
pub use job::{Call, Job};
pub use machine::Fingerprint;

/// A quotient, 0 where nothing is divided by.
fn per(what: f64, bytes: u64) -> f64 {
    if bytes == 0 { 0.0 } else { what / bytes as f64 }
}
