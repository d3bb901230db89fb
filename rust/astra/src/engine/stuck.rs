//! Which ranks never end, and in which nodes.

use super::mail::Key;
use super::rank::RUNNING;
use super::{COLLECTIVE_TAGS, Simulation};
use ahbm_findings::Diagnostic;
use ahbm_workload::Work;
use rustc_hash::FxHashMap;

/// Ranks that a finding lists.
const LISTED: usize = 8;

impl Simulation<'_> {
    /// The finding about ranks that never end; nothing where all do.
    pub(super) fn stuck(&self) -> Option<Diagnostic> {
        let stuck: Vec<u32> = (0..).zip(&self.ranks).filter(|(_, rank)| !rank.has_ended()).map(|(at, _)| at).collect();
        let &first = stuck.first()?;
        let which = if stuck.len() == 1 { format!("rank {first}") } else { format!("{} ranks", stuck.len()) };
        let mut finding = Diagnostic::new("AHBM-D103", "");
        let mut words = Vec::new();
        let mut silent = false;
        for &rank in stuck.iter().take(LISTED) {
            let open = &self.ranks[rank as usize].open;
            let running: Vec<u32> = (0..).zip(open).filter(|(_, open)| **open == RUNNING).map(|(at, _)| at).collect();
            silent |= running.is_empty();
            for node in running {
                let waits = format!("{} waits for {}", self.job.label(rank, node), self.partner(rank, node));
                if words.len() < 2 {
                    words.push(format!("rank {rank} in node {}", self.job.graph(rank).node(node).id));
                }
                finding = finding.site(waits, self.job.origin(rank, node));
            }
        }
        let more = if stuck.len() > words.len() { ", …" } else { "" };
        let place = if words.is_empty() { String::new() } else { format!(", {}{more}", words.join(", ")) };
        finding.message = format!("never ends there: {which} of {}{place}", self.ranks.len());
        if let Some(group) = self.torn(&stuck) {
            let what = "the ranks began different collectives of group";
            finding.hint = Some(format!(
                "{what} {group:?}: which of two ready ones comes first depends on time; the order of the graph is sound"
            ));
        } else if silent {
            finding.hint = Some(
                "nodes that state no work are skipped, and what waits for them is looked at when another node ends; \
                 none does"
                    .to_owned(),
            );
        } else if let Some(key) = self.mail.unreceived().first() {
            finding.hint = Some(format!(
                "rank {} got {} bytes of tag {} from rank {} that it did not ask for",
                key.dst, key.bytes, key.tag, key.src
            ));
        }
        Some(finding)
    }

    /// Messages that nobody received, though all ranks ended.
    pub(super) fn unreceived(&self) -> Vec<Diagnostic> {
        let finding = |key: &Key| {
            let Key { src, dst, tag, bytes } = *key;
            let what = format!("rank {src} sends {bytes} bytes of tag {tag} to rank {dst}, which never receives them");
            let graph = self.job.graph(src);
            let sends = |at: &u32| match &graph.node(*at).work {
                Work::Send(message) => {
                    message.bytes == bytes
                        && message.tag % COLLECTIVE_TAGS == tag
                        && self.job.ranks[src as usize].peers[message.peer as usize] == dst
                }
                _ => false,
            };
            let last = graph.order().iter().rev().copied().find(sends);
            let finding = Diagnostic::new("AHBM-F137", what).hint("ASTRA-sim ends without a word");
            match last {
                Some(node) => finding.site(self.job.label(src, node), self.job.origin(src, node)),
                None => finding,
            }
        };
        self.mail.unreceived().iter().take(LISTED).map(finding).collect()
    }

    /// The finding about a rank that begins with something that takes no time.
    pub(super) fn instant(&self, rank: u32) -> Diagnostic {
        let what = format!("rank {rank} begins with something that takes no time");
        let finding = Diagnostic::new("AHBM-U235", what).hint("ASTRA-sim stops there at an assertion");
        let open = &self.ranks[rank as usize].open;
        match (0..).zip(open).find(|(_, open)| **open == RUNNING) {
            Some((node, _)) => finding.site(self.job.label(rank, node), self.job.origin(rank, node)),
            None => finding,
        }
    }

    /// Whom a node waits for.
    fn partner(&self, rank: u32, node: u32) -> String {
        let peer = |at: u32| self.job.ranks[rank as usize].peers[at as usize];
        match &self.job.graph(rank).node(node).work {
            Work::Send(message) => format!("rank {}", peer(message.peer)),
            Work::Recv(message) => {
                format!("{} bytes of tag {} from rank {}", message.bytes, message.tag, peer(message.peer))
            }
            Work::Call(_) => match self.job.graph(rank).spec(node) {
                Some(spec) => {
                    let group = self.job.group(rank, spec.group);
                    let name = spec.collective.name();
                    format!(
                        "the {} ranks of group {:?} in {name} of {} bytes",
                        group.ranks.len(),
                        group.name,
                        spec.bytes
                    )
                }
                None => "its group".to_owned(),
            },
            _ => "its end".to_owned(),
        }
    }

    /// A group whose ranks are in different collectives.
    fn torn(&self, stuck: &[u32]) -> Option<String> {
        let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
        for &rank in stuck {
            let graph = self.job.graph(rank);
            let open = &self.ranks[rank as usize].open;
            let Some(node) = (0..).zip(open).find_map(|(at, open)| {
                (*open == RUNNING && matches!(graph.node(at).work, Work::Call(_))).then_some(at)
            }) else {
                continue;
            };
            let Some(slot) = graph.spec(node).map(|spec| spec.group) else { continue };
            let group = self.job.ranks[rank as usize].groups[slot as usize];
            let of_group = graph.order().iter().filter(|&&at| graph.spec(at).is_some_and(|spec| spec.group == slot));
            let number = of_group.take_while(|&&at| at != node).count();
            if *numbers.entry(group).or_insert(number) != number {
                return Some(self.job.groups[group as usize].name.to_string());
            }
        }
        None
    }
}
