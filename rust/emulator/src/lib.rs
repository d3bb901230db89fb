//! Program × Machine → Timeline → data.
//!
//! Pass 1 ([`simulate`]) says when, pass 2 ([`replay`]) says what. [`mod@check`] says whether it is right, whatever the order.

pub mod check;
pub mod data;
mod timeline;
mod timing;

pub use check::{CheckOptions, Expectation, Outcome, Proof, Verdict, check};
pub use data::{Memory, replay};
pub use timeline::{Span, Timeline};
pub use timing::{Options, simulate};
