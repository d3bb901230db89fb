//! Program × Machine → Timeline → data.
//!
//! Pass 1 ([`simulate`]) says when, pass 2 ([`replay`]) says what. [`mod@job`] says when of many programs that share a
//! machine, [`mod@training`] of a training job.
//!
//! Reading order: `timing` (a process per agent), `timing/agent` (what each operation costs and waits for),
//! `timing/wiring` (routes, worked out before) and `timing/network` (who crosses which link when); `fold` (one rank for many); [`mod@data`] and
//! `data/replay`; [`Timeline`], [`Detail`] and `why` (what is known afterwards); [`mod@inspect`]
//! (what an element was made of, and the state at a time); [`mod@job`]. The rules of waiting are
//! those of [`ahbm_program::op`].

pub mod data;
mod detail;
mod disjoint;
mod flows;
mod fold;
pub mod inspect;
pub mod job;
mod timeline;
mod timing;
pub mod training;
mod why;

#[cfg(test)]
#[path = "../tests/it/support/ring.rs"]
mod support;

pub use data::{Access, Copied, Memory, Prepared, Recipe, replay};
pub use detail::{Category, Detail, DmaChannel, Kind, Piece, PieceId};
pub use flows::flows;
pub use fold::simulate;
pub use timeline::{NEVER, Span, Timeline};
pub use timing::{Options, math_ps, simulate_free, until_stuck};
pub use why::{Interval, LinkUse, Segment};
