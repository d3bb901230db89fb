//! Training jobs as graphs: what every rank computes, calls, sends and receives, and what waits for what.
//!
//! A [`Workload`] is the waist between the sources of jobs (Chakra traces, profiler traces, recordings, generators) and
//! their consumers (the replay on a machine, the parity engine, checks, writers). Ranks whose graphs differ only in the
//! groups they call and the peers they talk to share one [`Graph`]; a [`Rank`] binds its slots. Every diagnosis of a
//! job stands here, once.
//!
//! ```
//! use ahbm_workload::{Collective, Gather, Groups, Kernel, NodeBuilder, RankBuilder, Work};
//!
//! let mut gather = Gather::new("step", 2, Groups::default());
//! for rank in 0..2 {
//!     let mut job = RankBuilder::new(rank, "step.et");
//!     job.push(NodeBuilder::new(0, "matmul").work(Work::Compute(Kernel::new(1 << 20, 4096))));
//!     let group = gather.group(rank, "", None, || "node 1".into())?;
//!     let call = job.call(Collective::AllReduce, group, 4096);
//!     job.push(NodeBuilder::new(1, "gradients").work(call).after(&[0]));
//!     gather.add(job.finish(false)?);
//! }
//! let workload = gather.finish();
//! assert_eq!((workload.ranks.len(), workload.graphs.len()), (2, 1), "equal ranks share their graph");
//! assert_eq!(workload.calls()?.len(), 1);
//! # Ok::<(), Vec<ahbm_findings::Diagnostic>>(())
//! ```
//!
//! Reading order: [`Node`], [`Graph`], [`RankBuilder`], [`Workload`], [`Call`], [`Message`].

mod alike;
mod build;
mod calls;
mod chains;
mod copies;
mod crossing;
mod dimensions;
mod edges;
mod graph;
mod kernel;
mod linked;
mod messages;
mod node;
mod replicas;
mod shares;
mod together;
mod transformer;
mod workload;

pub use build::{NodeBuilder, RankBuilder, RankGraph};
pub use calls::Call;
pub use chains::{Chains, Link};
pub use copies::Copies;
pub use edges::{Edges, circular, dangling};
pub use graph::Graph;
pub use kernel::{Arithmetic, DIMS, Kernel, Kind};
pub use linked::{Chunk, LARGE, Linked, Share};
pub use messages::Message;
pub use node::{CallSpec, Collective, MessageSpec, Node, PartSpec, Work};
pub use shares::Shares;
pub use transformer::{Recompute, Schedule, Transformer};
pub use workload::{Gather, Group, Groups, Rank, Workload};

use ahbm_findings::Diagnostic;

/// A finding that stands alone.
fn one(finding: Diagnostic) -> Vec<Diagnostic> {
    vec![finding]
}
