//! Synthesis: lower bounds, and schedules computed from a machine that come close to them.
//!
//! Pure, deterministic by seed, knows no emulator.
//!
//! ```
//! use ahbm_machine::Rate;
//! use ahbm_synthesis::{Collective, Graph, Link, METHODS, Request, synthesize};
//!
//! // Eight NPUs in a ring, links of 100 GB/s and 500 ns both ways.
//! let rate = Rate::from_gbs(100.0).expect("a bandwidth");
//! let link = |from, to| Link { from, to, rate, latency_ps: 500_000 };
//! let links = (0..8).flat_map(|npu| [link(npu, (npu + 1) % 8), link((npu + 1) % 8, npu)]).collect();
//! let graph = Graph::new(8, links)?;
//!
//! let request = Request {
//!     collective: Collective::AllGather,
//!     share_bytes: 1_000_000,
//!     chunks: 1,
//!     unit: 2,
//!     members: vec![],
//!     root: 0,
//!     method: "auto".into(),
//!     seed: 0,
//! };
//! let bound = request.bound(&graph)?;
//! let found = synthesize(&graph, &request, &bound)?;
//! assert!(found.time_ps >= bound.ps);
//! found.schedule.check(&graph).expect("every NPU ends with every share");
//!
//! // A method says why it does not apply.
//! let swing = METHODS.into_iter().find(|method| method.name() == "swing").expect("a method");
//! let scatter = Request { collective: Collective::Scatter, ..request };
//! assert_eq!(swing.applies(&scatter, &graph).unwrap_err().code, "AHBM-U406");
//! # Ok::<(), ahbm_findings::Diagnostic>(())
//! ```
//!
//! Reading order: [`graph`] (the network), [`mod@bound`] (the time no schedule can beat), [`schedule`] (what a schedule
//! is, when its transfers happen and whether it is right), `request` and [`Method`] (what is asked for and who answers),
//! then the methods. `greedy` spreads chunks to everybody, on networks that look the same from every NPU by way of
//! `translated`; [`trees`] packs spanning trees for all-reduce,
//! `arborescences` packs directed ones, `routed` sends each chunk to one place, and `forms` writes schedules down rather
//! than searching for them. [`synthesize()`] has the table of methods and takes the quickest schedule;
//! [`Schedule::to_plan`] makes a plan of it, and lowering the plan a program. A new method is an implementation of [`Method`] and a line of [`METHODS`].

mod arborescences;
pub mod bound;
mod flow;
mod forms;
pub mod graph;
mod greedy;
mod limit;
mod list;
mod method;
mod plan;
mod ports;
mod random;
mod request;
mod routed;
pub mod schedule;
mod synthesize;
mod translated;
pub mod trees;

pub use ahbm_plan::Collective;
pub use bound::{Bound, Cut, Parts, bound};
pub use graph::{Graph, Grid, Link, Switch};
pub use limit::{Limit, Network, cubes_of_a_sip};
pub use method::{Method, Task};
pub use plan::ends;
pub use ports::{Engines, Least, least_by_io};
pub use request::{Request, Synthesis};
pub use schedule::{Parcel, Schedule, Times, Transfer, split};
pub use synthesize::{METHODS, synthesize};

#[cfg(test)]
mod shapes;
