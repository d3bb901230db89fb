//! Program × Machine → Timeline → data.
//!
//! Pass 1 ([`simulate`]) says when, pass 2 ([`replay`]) says what. [`mod@check`] says whether it is right, whatever the
//! order. [`mod@job`] says when of many programs that share a machine.

pub mod check;
pub mod data;
mod detail;
pub mod job;
mod timeline;
mod timing;
mod why;

pub use check::{CheckOptions, Expectation, Outcome, Proof, Verdict, check};
pub use data::{Memory, Prepared, replay};
pub use detail::{Category, Detail, Kind, Piece, PieceId};
pub use timeline::{Span, Timeline};
pub use timing::{Options, simulate};
pub use why::{LinkUse, Segment};
