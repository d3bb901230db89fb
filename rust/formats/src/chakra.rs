//! Chakra execution traces: a graph of operations per rank, in files `<prefix>.<rank>.et`.
//!
//! [`read`] accepts what producers write: framing with or without metadata, gzip, numbers in every integral
//! arm, control and data dependencies alike. A trace of sends, receives and computation only is an
//! *algorithm* and runs ([`Trace::lower`]); one with collectives is the trace of a job, which is replayed
//! ([`Trace::workload`]). Memory nodes are read and counted ([`Trace::summary`]) only.
//!
//! An algorithm whose nodes also say which chunks they move, and where, is a [`ahbm_plan::Plan`]: one that was written
//! from a plan ([`Trace::from_plan`], [`Trace::to_plan`]) or by the public converter ([`Trace::symbolic_plan`]).
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-F130` | nodes whose order is not that of the steps they state |
//! | `AHBM-F131` | bytes that are no execution trace, with the offset |
//! | `AHBM-F132` | broken gzip or Zstandard stream |
//! | `AHBM-F133` | two nodes with one id |
//! | `AHBM-F134` | dependency on a node that does not exist |
//! | `AHBM-F135` | nodes that wait for each other |
//! | `AHBM-F136` | attribute that is missing, of another type or out of range |
//! | `AHBM-F137` | send without a receive, or the reverse |
//! | `AHBM-F138` | send and receive of different sizes |
//! | `AHBM-F139` | files that are missing or cannot be read or written |
//! | `AHBM-F149` | collective that ranks of its group lack or disagree on |
//! | `AHBM-U231` | node that cannot be run |
//! | `AHBM-U232` | algorithm without a size of its own, run without a size, or the reverse |
//! | `AHBM-U233` | trace run on data or converted: it names no buffers |
//! | `AHBM-U234` | process group whose ranks the trace does not name |

mod algorithm;
mod decode;
mod files;
mod fold;
mod from_plan;
mod from_workload;
mod graph;
mod json;
mod pairs;
mod recorded;
mod summary;
mod symbolic;
mod to_plan;
mod to_workload;

pub use files::{find, is_json_trace, is_trace, read, render};
pub use from_plan::PlanOptions;
pub use from_workload::write_workload;
pub use graph::Graph;
pub use recorded::{Event, Fact, Family, recorded};
pub use summary::Summary;
pub use to_workload::{Sort, parse_workload, read_ranks, read_workload, sort};

use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Limit};
use ahbm_wire::chakra::{Metadata, Node, Value, encode};
use std::sync::Arc;

/// How to read a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// Limits, over all ranks together.
    pub budget: Budget,
    /// Leaves out dependencies on nodes that do not exist, and keeps graphs with a cycle for counting, instead
    /// of refusing the trace.
    pub lenient: bool,
}

/// Attributes a node may have.
const MAX_ATTRIBUTES: usize = 256;

/// The part of the budget that has been taken so far.
#[derive(Debug, Default)]
struct Usage {
    file_bytes: u64,
    inflated_bytes: u64,
    nodes: u64,
    deps: u64,
}

impl Usage {
    /// Counts nodes and their dependencies.
    fn take(&mut self, nodes: u64, deps: u64, options: &ReadOptions) -> Result<(), Diagnostic> {
        self.nodes += nodes;
        options.budget.check(Limit::Steps, self.nodes)?;
        self.deps += deps;
        options.budget.check(Limit::Deps, self.deps)
    }

    /// Counts a node and bounds what it holds.
    fn admit(&mut self, node: &Node, options: &ReadOptions) -> Result<(), Diagnostic> {
        self.take(1, (node.ctrl_deps.len() + node.data_deps.len()) as u64, options)?;
        let text = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
        let longest = node.attributes.iter().map(|a| a.name.len().max(text(&a.value))).max().unwrap_or(0);
        options.budget.check(Limit::StringBytes, longest.max(node.name.len()) as u64)?;
        if node.attributes.len() > MAX_ATTRIBUTES {
            let message = format!("no execution trace: node {} has {} attributes", node.id, node.attributes.len());
            return Err(Diagnostic::new("AHBM-F131", message).hint(format!("a node has at most {MAX_ATTRIBUTES}")));
        }
        Ok(())
    }
}

/// The traces of all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Name for people: the prefix.
    pub name: String,
    /// One graph per rank, in rank order.
    pub graphs: Vec<Graph>,
    /// Why it is read in another way than a real run would, or not followed as a plan.
    pub warnings: Vec<Diagnostic>,
}

/// Reads a trace from memory: per rank its file name, for origins, and its bytes; names that end in `.json` hold the
/// JSON form.
///
/// # Errors
/// `AHBM-F131` to `F135` malformed, `AHBM-B201` to `B207` over budget.
pub fn parse(name: &str, files: &[(&str, &[u8])], options: &ReadOptions) -> Result<Trace, Vec<Diagnostic>> {
    options.budget.check(Limit::Ranks, files.len() as u64).map_err(one)?;
    let mut usage = Usage::default();
    let graphs = (0..)
        .zip(files)
        .map(|(rank, (file, bytes))| {
            usage.file_bytes += bytes.len() as u64;
            options.budget.check(Limit::FileBytes, usage.file_bytes).map_err(one)?;
            graph_of(rank, &Arc::from(*file), bytes, options, &mut usage)
        })
        .collect::<Result<_, _>>()?;
    Ok(Trace { name: name.to_owned(), graphs, warnings: Vec::new() })
}

impl Trace {
    /// The bytes of every rank's file, in rank order.
    pub fn to_bytes(&self) -> Vec<Vec<u8>> {
        self.graphs.iter().map(|g| encode(&g.metadata, &g.nodes)).collect()
    }

    /// A trace from nodes, for producers.
    ///
    /// # Errors
    /// `AHBM-F134` and `AHBM-F135` as for a file.
    pub fn from_nodes(name: &str, metadata: &Metadata, ranks: Vec<Vec<Node>>) -> Result<Self, Vec<Diagnostic>> {
        Self::from_ranks(name, ranks.into_iter().map(|nodes| (metadata.clone(), nodes)).collect())
    }

    /// As [`Trace::from_nodes`], where every rank has metadata of its own.
    fn from_ranks(name: &str, ranks: Vec<(Metadata, Vec<Node>)>) -> Result<Self, Vec<Diagnostic>> {
        let graphs = (0..)
            .zip(ranks)
            .map(|(rank, (metadata, nodes))| {
                Graph::new(rank, format!("{name}.{rank}.et").into(), metadata, nodes, false)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), graphs, warnings: Vec::new() })
    }
}

/// The graph in a rank's file, whose form the file's name tells.
fn graph_of(
    rank: u32,
    file: &Arc<str>,
    bytes: &[u8],
    options: &ReadOptions,
    usage: &mut Usage,
) -> Result<Graph, Vec<Diagnostic>> {
    let read = if file.ends_with(".json") { json::graph } else { decode::graph };
    read(rank, file, bytes, options, usage)
}

/// A finding that stands alone.
pub(crate) fn one(finding: Diagnostic) -> Vec<Diagnostic> {
    vec![finding]
}
