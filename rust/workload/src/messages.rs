//! Which send belongs to which receive: the k-th of one size between two ranks of a process group under one tag.

use crate::copies::Copies;
use crate::node::{MessageSpec, Work};
use crate::workload::Workload;
use ahbm_findings::Diagnostic;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// A send and its receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Rank and node position of the send.
    pub send: (u32, u32),
    /// Rank and node position of the receive.
    pub recv: (u32, u32),
    /// Size.
    pub bytes: u64,
    /// Group, where the ends state one.
    pub group: Option<u32>,
    /// Tag.
    pub tag: u32,
    /// The message before it between the same ranks, in the same group and under the same tag.
    pub after: Option<u32>,
}

/// Rank and node position.
type At = (u32, u32);

#[derive(Default)]
struct Ends {
    sends: Vec<(u64, At)>,
    recvs: Vec<(u64, At)>,
}

/// Findings that one answer lists.
const LISTED: usize = 50;

impl Workload {
    /// The messages in the order of sender and its graph.
    ///
    /// # Errors
    /// `AHBM-F137` an end without the other, `AHBM-F138` sizes under one tag that differ; at most 50 findings.
    pub fn messages(&self) -> Result<Vec<Message>, Vec<Diagnostic>> {
        self.messages_of(None)
    }

    /// Those between ranks that lead; all of them without copies. Errors as of [`Workload::messages`].
    pub(crate) fn messages_of(&self, copies: Option<Copies>) -> Result<Vec<Message>, Vec<Diagnostic>> {
        let mut filed: IndexMap<(Option<u32>, u32, u32, u32), Ends, FxBuildHasher> = IndexMap::default();
        let leads = |rank: u32| copies.is_none_or(|copies| copies.leads(rank));
        for (rank, bound) in (0..).zip(&self.ranks).filter(|(rank, _)| leads(*rank)) {
            let graph = self.graph(rank);
            let key = |spec: &MessageSpec, sends: bool| {
                let group = spec.group.map(|slot| bound.groups[slot as usize]);
                let peer = bound.peers[spec.peer as usize];
                let (src, dst) = if sends { (rank, peer) } else { (peer, rank) };
                (group, src, dst, spec.tag)
            };
            for &at in graph.order() {
                match &graph.node(at).work {
                    Work::Send(spec) => {
                        filed.entry(key(spec, true)).or_default().sends.push((spec.bytes, (rank, at)));
                    }
                    Work::Recv(spec) => {
                        filed.entry(key(spec, false)).or_default().recvs.push((spec.bytes, (rank, at)));
                    }
                    _ => {}
                }
            }
        }
        let (mut found, mut findings) = (Vec::new(), Vec::new());
        for ((group, src, dst, tag), mut ends) in filed {
            if ends.sends.len() != ends.recvs.len() {
                findings.push(self.unmatched((src, dst, tag), &ends));
            } else {
                // Stable: among equal sizes the order of the graph stays.
                ends.sends.sort_by_key(|(size, _)| *size);
                ends.recvs.sort_by_key(|(size, _)| *size);
                match ends.sends.iter().zip(&ends.recvs).find(|(sent, received)| sent.0 != received.0) {
                    Some((sent, received)) => findings.push(self.mismatch(*sent, *received)),
                    None => {
                        found.extend(ends.sends.iter().zip(&ends.recvs).map(|(&(bytes, send), &(_, recv))| Message {
                            send,
                            recv,
                            bytes,
                            group,
                            tag,
                            after: None,
                        }))
                    }
                }
            }
            if findings.len() == LISTED {
                break;
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let places: Vec<Vec<u32>> = self.graphs.iter().map(crate::Graph::places).collect();
        let place = |(rank, at): At| places[self.ranks[rank as usize].graph as usize][at as usize];
        found.sort_by_key(|message| (message.send.0, place(message.send)));
        let mut last: rustc_hash::FxHashMap<(Option<u32>, u32, u32, u32), u32> = Default::default();
        for (number, message) in (0..).zip(&mut found) {
            message.after = last.insert((message.group, message.send.0, message.recv.0, message.tag), number);
        }
        Ok(found)
    }

    fn unmatched(&self, (src, dst, tag): (u32, u32, u32), ends: &Ends) -> Diagnostic {
        let (sends, recvs) = (ends.sends.len(), ends.recvs.len());
        let (rank, at) = if sends > recvs { ends.sends[recvs].1 } else { ends.recvs[sends].1 };
        let what = format!("rank {src} sends {sends} messages of tag {tag} to rank {dst}, which receives {recvs}");
        Diagnostic::new("AHBM-F137", what)
            .site(self.label(rank, at), self.origin(rank, at))
            .hint("every send needs a receive of the same source, destination, tag and size")
    }

    fn mismatch(&self, sent: (u64, At), received: (u64, At)) -> Diagnostic {
        let what = format!("a message of {} bytes meets a receive of {} bytes", sent.0, received.0);
        [sent.1, received.1].into_iter().fold(Diagnostic::new("AHBM-F138", what), |finding, (rank, at)| {
            finding.site(self.label(rank, at), self.origin(rank, at))
        })
    }
}
