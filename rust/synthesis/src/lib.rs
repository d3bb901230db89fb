//! Synthesis: lower bounds, and schedules computed from a machine that come close to them.
//!
//! Pure, deterministic by seed, knows no emulator. [`graph`] is the network, [`mod@bound`] what no schedule can beat,
//! [`schedule`] what a schedule is, when its transfers happen and whether it is right. `greedy` spreads chunks to
//! everybody, [`trees`] packs spanning trees for all-reduce, `routed` sends each chunk to one place, `forms` has what
//! is written down rather than searched for; [`synthesize`] takes the quickest.

mod arborescences;
pub mod bound;
mod collective;
mod flow;
mod forms;
pub mod graph;
mod greedy;
mod limit;
mod list;
mod lower;
mod random;
mod routed;
pub mod schedule;
mod synthesize;
pub mod trees;

pub use bound::{Bound, Cut, bound};
pub use collective::Collective;
pub use graph::{Graph, Grid, Link, Switch};
pub use limit::{Limit, cubes_of_a_sip};
pub use lower::{Elements, Lowered, ends, engines, lower};
pub use schedule::{Parcel, Schedule, Times, Transfer, split};
pub use synthesize::{METHODS, Request, Synthesis, synthesize};

#[cfg(test)]
mod shapes;
