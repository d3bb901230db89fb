//! What a run says.

use ahbm_findings::Diagnostic;
use ahbm_workload::Collective;

/// Times of a rank in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankTimes {
    /// When the rank ended; nothing where it never does.
    pub cycles: Option<u64>,
    /// The total without the computation on the GPU.
    pub exposed: Option<u64>,
    /// Time in which a communication node ran.
    pub comm_ns: u64,
    /// Time in which a computation ran on the GPU.
    pub gpu_ns: u64,
}

/// What passed through a dimension of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Messages between NPUs that differ in the dimension.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What passed through a directed link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Its dimension.
    pub dimension: usize,
    /// The NPU it leaves, or `switch`.
    pub from: String,
    /// The NPU it leads to, or `switch`.
    pub to: String,
    /// Bytes carried.
    pub bytes: u64,
}

/// Collectives of one type, size and number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKind {
    /// The type.
    pub collective: Collective,
    /// Bytes as the nodes state them.
    pub bytes: u64,
    /// Ranks of the group.
    pub ranks: u32,
    /// Nodes that have ended, over all ranks.
    pub nodes: u64,
    /// Their time in ns, summed.
    pub total_ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
}

impl CallKind {
    pub(crate) fn new(collective: Collective, bytes: u64, ranks: u32) -> Self {
        Self { collective, bytes, ranks, nodes: 0, total_ns: 0, longest_ns: 0 }
    }

    pub(crate) fn add(&mut self, ns: u64) {
        self.nodes += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Per rank.
    pub ranks: Vec<RankTimes>,
    /// Per rank and node position, start and end in ns, where they were asked for.
    pub times: Option<Vec<Vec<(u64, u64)>>>,
    /// Collectives by kind, in the order in which the first of each ended.
    pub calls: Vec<CallKind>,
    /// Per dimension.
    pub traffic: Vec<Traffic>,
    /// Links that carried something; none where messages do not share links.
    pub links: Vec<LinkTraffic>,
    /// Events that the run took.
    pub events: u64,
    /// Ranks that never end (`AHBM-D103`), messages that nobody received (`AHBM-F137`), algorithm graphs too small for
    /// their collectives (`AHBM-U232`).
    pub findings: Vec<Diagnostic>,
}
