//! Which send belongs to which receive: the k-th of one size between two ranks of a process group under one tag.

use super::graph::wrong;
use super::{Graph, Trace, one};
use ahbm_findings::Diagnostic;
use ahbm_wire::chakra::NodeKind;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Rank and position of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub(super) rank: u32,
    pub(super) node: u32,
}

/// A send, its receive and what both are filed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) tag: u32,
    pub(super) send: At,
    pub(super) recv: At,
}

/// A size as the node states it, comparable between both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Size {
    Bytes(u64),
    /// Chunks, of how many.
    Share(u64, u64),
}

#[derive(Default)]
struct Ends {
    sends: Vec<(Size, At)>,
    recvs: Vec<(Size, At)>,
}

/// By process group, sender, receiver and tag.
type Filed<'a> = IndexMap<(&'a str, u32, u32, u32), Ends, FxBuildHasher>;

/// The size of a send or receive. A share is preferred where the node has both and `symbolic` is set.
pub(super) fn size(graph: &Graph, at: u32, symbolic: bool) -> Result<Size, Diagnostic> {
    let share = || -> Result<Option<Size>, Diagnostic> {
        match (number(graph, at, "msg_chunk_cnt")?, number(graph, at, "total_chunk_cnt")?) {
            (Some(count), Some(total)) if count > 0 && total > 0 => Ok(Some(Size::Share(count, total))),
            (Some(_), Some(_)) => Err(wrong(graph, at, "msg_chunk_cnt or total_chunk_cnt", "is 0")),
            _ => Ok(None),
        }
    };
    if symbolic && let Some(share) = share()? {
        return Ok(share);
    }
    match number(graph, at, "comm_size")? {
        Some(bytes) => Ok(Size::Bytes(bytes)),
        None => share()?.ok_or_else(|| wrong(graph, at, "comm_size", "is missing")),
    }
}

/// A non-negative attribute; `None` where it is absent.
pub(super) fn number(graph: &Graph, at: u32, name: &str) -> Result<Option<u64>, Diagnostic> {
    let number = graph.nodes[at as usize].whole(name).map_err(|other| wrong(graph, at, name, &other))?;
    let Some(number) = number else { return Ok(None) };
    u64::try_from(number).map(Some).map_err(|_| wrong(graph, at, name, &format!("is {number}")))
}

/// An attribute that is set or not; not where it is absent.
pub(super) fn flag(graph: &Graph, at: u32, name: &str) -> Result<bool, Diagnostic> {
    let number = graph.nodes[at as usize].whole(name).map_err(|other| wrong(graph, at, name, &other))?;
    Ok(number.is_some_and(|n| n != 0))
}

/// A text; `None` where it is absent.
pub(super) fn word<'a>(graph: &'a Graph, at: u32, name: &str) -> Result<Option<&'a str>, Diagnostic> {
    graph.nodes[at as usize].word(name).map_err(|other| wrong(graph, at, name, &other))
}

/// Every pair of the trace, in order of the send's rank and dependencies.
///
/// # Errors
/// `AHBM-F136` for a peer that is missing or out of range, `AHBM-F137` for an end without the other,
/// `AHBM-F138` when the sizes under one tag differ. All findings of one kind at once, at most 50.
pub(super) fn pairs(trace: &Trace, symbolic: bool) -> Result<Vec<Pair>, Vec<Diagnostic>> {
    let ranks = trace.graphs.len() as u64;
    let mut filed: Filed<'_> = IndexMap::default();
    for graph in &trace.graphs {
        for &node in graph.order() {
            let at = At { rank: graph.rank, node };
            let sends = match graph.nodes[node as usize].kind {
                NodeKind::Send => true,
                NodeKind::Recv => false,
                _ => continue,
            };
            let name = if sends { "comm_dst" } else { "comm_src" };
            let peer = match number(graph, node, name).map_err(one)? {
                None => return Err(vec![wrong(graph, node, name, "is missing")]),
                Some(peer) if peer >= ranks => {
                    return Err(vec![wrong(graph, node, name, &format!("is {peer}, the trace has {ranks} ranks"))]);
                }
                Some(peer) if peer == u64::from(graph.rank) => {
                    return Err(vec![wrong(graph, node, name, "is the rank itself")]);
                }
                Some(peer) => peer as u32,
            };
            let tag = match number(graph, node, "comm_tag").map_err(one)?.map(u32::try_from) {
                None => 0,
                Some(Ok(tag)) => tag,
                Some(Err(_)) => return Err(vec![wrong(graph, node, "comm_tag", "is above 4294967295")]),
            };
            let size = size(graph, node, symbolic).map_err(one)?;
            graph.nodes[node as usize].title("pg_name").map_err(|other| vec![wrong(graph, node, "pg_name", &other)])?;
            let group = graph.nodes[node as usize].text("pg_name").unwrap_or_default();
            if sends {
                filed.entry((group, graph.rank, peer, tag)).or_default().sends.push((size, at));
            } else {
                filed.entry((group, peer, graph.rank, tag)).or_default().recvs.push((size, at));
            }
        }
    }
    join(trace, filed)
}

/// Findings that one answer lists.
const LISTED: usize = 50;

fn join(trace: &Trace, filed: Filed<'_>) -> Result<Vec<Pair>, Vec<Diagnostic>> {
    let mut pairs = Vec::new();
    let mut findings = Vec::new();
    for ((_, src, dst, tag), mut ends) in filed {
        if ends.sends.len() != ends.recvs.len() {
            findings.push(unmatched(trace, (src, dst, tag), &ends));
        }
        // Stable: among equal sizes the order of the dependencies stays.
        ends.sends.sort_by_key(|(size, _)| *size);
        ends.recvs.sort_by_key(|(size, _)| *size);
        for (&(sent, send), &(received, recv)) in ends.sends.iter().zip(&ends.recvs) {
            if sent != received && ends.sends.len() == ends.recvs.len() {
                findings.push(mismatch(trace, (sent, send), (received, recv)));
                break;
            }
            pairs.push(Pair { tag, send, recv });
        }
        if findings.len() == LISTED {
            break;
        }
    }
    if findings.is_empty() { Ok(pairs) } else { Err(findings) }
}

fn unmatched(trace: &Trace, (src, dst, tag): (u32, u32, u32), ends: &Ends) -> Diagnostic {
    let (sends, recvs) = (ends.sends.len(), ends.recvs.len());
    let extra = if sends > recvs { ends.sends[recvs] } else { ends.recvs[sends] };
    let (label, origin) = trace.graphs[extra.1.rank as usize].site(extra.1.node);
    Diagnostic::new(
        "AHBM-F137",
        format!("rank {src} sends {sends} messages of tag {tag} to rank {dst}, which receives {recvs}"),
    )
    .site(label, origin)
    .hint("every send needs a receive of the same source, destination, tag and size")
}

fn mismatch(trace: &Trace, sent: (Size, At), received: (Size, At)) -> Diagnostic {
    let mut finding =
        Diagnostic::new("AHBM-F138", format!("a message of {} meets a receive of {}", sent.0, received.0));
    for (_, at) in [sent, received] {
        let (label, origin) = trace.graphs[at.rank as usize].site(at.node);
        finding = finding.site(label, origin);
    }
    finding
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Share(count, total) => write!(f, "{count} of {total} chunks"),
        }
    }
}
