//! The contents of a trace, in numbers.

use super::{Graph, Trace};
use ahbm_findings::Diagnostic;
use ahbm_plan::Goal;
use ahbm_wire::chakra::{COLLECTIVES, Metadata, NodeKind};
use std::collections::BTreeMap;

/// The versions of the schema that are read. Their messages are the same; older ones have other fields.
const VERSIONS: [&str; 3] = ["0.0.4", "1.0.0", "symbolic_tensor_network"];

/// Counts over all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Ranks.
    pub ranks: usize,
    /// True when the trace runs: sends, receives and computation only.
    pub algorithm: bool,
    /// The collective that the trace says it computes.
    pub collective: Option<String>,
    /// Nodes by the schema's type name.
    pub nodes: BTreeMap<&'static str, u64>,
    /// Collective nodes by name: how many, and the sum of their `comm_size`.
    pub collectives: BTreeMap<String, (u64, u128)>,
    /// Dependencies left out by lenient reading.
    pub dangling: u64,
}

impl Trace {
    /// True when the trace consists of sends, receives and computation.
    pub fn is_algorithm(&self) -> bool {
        let mut nodes = self.graphs.iter().flat_map(|g| &g.nodes);
        nodes.all(|n| matches!(n.kind, NodeKind::Send | NodeKind::Recv) || Graph::is_local(n))
            && self.graphs.iter().any(|g| g.count(NodeKind::Send) + g.count(NodeKind::Recv) > 0)
    }

    /// The collective that the trace says it computes.
    pub fn goal(&self) -> Goal {
        let name = self.graphs.first().and_then(|g| g.metadata.text("collective"));
        name.map_or(Goal::Custom, Goal::parse)
    }

    /// Nodes of all ranks.
    pub fn nodes(&self) -> u64 {
        self.graphs.iter().map(|g| g.nodes.len() as u64).sum()
    }

    /// Why a trace has no operand and no result.
    pub fn without_buffers(&self) -> Diagnostic {
        Diagnostic::new(
            "AHBM-U233",
            format!("the trace {} names no buffers: which bytes go where is not known", self.name),
        )
        .hint("ahbm check follows its messages, ahbm run takes their time")
    }

    /// A warning (`AHBM-F182`) for the first rank that states a version of the schema which is not known.
    pub fn unknown_version(&self) -> Option<Diagnostic> {
        self.graphs.iter().find_map(|graph| unknown_version(&graph.metadata, graph.rank, &graph.file))
    }

    /// Counts its nodes.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            ranks: self.graphs.len(),
            algorithm: self.is_algorithm(),
            collective: self.graphs.first().and_then(|g| g.metadata.text("collective")).map(str::to_owned),
            ..Summary::default()
        };
        for graph in &self.graphs {
            summary.dangling += graph.dangling as u64;
            for node in &graph.nodes {
                *summary.nodes.entry(node.kind.name()).or_default() += 1;
                if node.kind == NodeKind::Collective {
                    let number = node.integer("comm_type");
                    let name = number.and_then(|n| COLLECTIVES.get(usize::try_from(n).ok()?)).copied();
                    let entry = summary.collectives.entry(name.unwrap_or("unknown").to_lowercase()).or_default();
                    entry.0 += 1;
                    entry.1 += node.integer("comm_size").and_then(|n| u128::try_from(n).ok()).unwrap_or(0);
                }
            }
        }
        summary
    }
}

/// A warning (`AHBM-F182`) where a rank's file states a version of the schema that is not known.
///
/// Versions as the producers of traces write them: of the schema itself, or of a producer's own schema and, behind
/// `chakra.`, of this one.
pub(super) fn unknown_version(metadata: &Metadata, rank: u32, file: &str) -> Option<Diagnostic> {
    let version = &*metadata.version;
    if version.is_empty() || VERSIONS.contains(&version.rsplit("chakra.").next().unwrap_or(version)) {
        return None;
    }
    let message = format!("version {version:?} of the schema is not known: it is read as {}", VERSIONS[1]);
    let finding = Diagnostic::new("AHBM-F182", message).site(format!("rank {rank}"), file);
    Some(finding.hint(format!("known are {}", VERSIONS.join(", "))))
}
