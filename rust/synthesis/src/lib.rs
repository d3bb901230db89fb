//! Synthesis: lower bounds, and schedules computed from a machine that come close to them.
//!
//! Pure, deterministic by seed, knows no emulator. [`graph`] is the network, [`mod@bound`] what no schedule can beat.

pub mod bound;
mod collective;
mod flow;
pub mod graph;

pub use bound::{Bound, Cut, bound};
pub use collective::Collective;
pub use graph::{Graph, Link};

#[cfg(test)]
mod shapes;
