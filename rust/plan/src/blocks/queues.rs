//! Queues: both ends of every (source rank, destination rank, channel).

use super::{Action, Block, Plan};
use ahbm_findings::Diagnostic;
use ahbm_machine::Direction;
use ahbm_program::{AgentId, ProgramBuilder};
use rustc_hash::{FxHashMap, FxHashSet};

/// Source rank, destination rank, channel.
type Key = (u32, u32, u32);

/// Findings listed.
const LISTED: usize = 8;

/// The agents at both ends of every queue.
#[derive(Default)]
pub(super) struct Queues {
    senders: Vec<(AgentId, Key)>,
    receivers: FxHashMap<Key, AgentId>,
}

impl Queues {
    /// Notes the agent of a thread block of `rank`.
    pub(super) fn add(&mut self, rank: u32, block: &Block, channel: u32, agent: AgentId) {
        if let Some(peer) = block.send {
            self.senders.push((agent, (rank, peer, channel)));
        }
        if let Some(peer) = block.recv {
            self.receivers.insert((peer, rank, channel), agent);
        }
    }

    pub(super) fn connect(&self, builder: &mut ProgramBuilder) {
        for (sender, key) in &self.senders {
            let &(from, to, channel) = key;
            if let Some(&receiver) = self.receivers.get(key) {
                let (there, back) = (Direction::Tag { rank: to, channel }, Direction::Tag { rank: from, channel });
                builder.connect((*sender, there), (receiver, back));
            }
        }
    }
}

/// Which end of a queue a thread block is.
#[derive(Clone, Copy)]
enum End {
    Sender,
    Receiver,
}

impl End {
    fn peer(self, block: &Block) -> Option<u32> {
        match self {
            Self::Sender => block.send,
            Self::Receiver => block.recv,
        }
    }

    fn uses(self, action: Action) -> bool {
        match self {
            Self::Sender => action.sends(),
            Self::Receiver => action.receives(),
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::Sender => "sends to",
            Self::Receiver => "receives from",
        }
    }
}

impl Plan {
    /// Steps that send where no thread block receives, and the reverse: `AHBM-F128` with both sides.
    pub fn unmatched(&self) -> Vec<Diagnostic> {
        let mut findings = Vec::new();
        for end in [End::Sender, End::Receiver] {
            // Every block that is the other end, by (its rank, its peer, channel).
            let others: FxHashSet<Key> = self
                .numbered()
                .filter_map(|(rank, _, block)| Some((rank, end.other().peer(block)?, block.channel)))
                .collect();
            for (rank, id, block) in self.numbered() {
                let Some(peer) = end.peer(block) else { continue };
                let Some(step) = block.steps.iter().find(|step| end.uses(step.action)) else { continue };
                if !others.contains(&(peer, rank, block.channel)) && findings.len() < LISTED {
                    findings.push(self.nobody(end, (rank, id, peer), block.channel, step.line));
                }
            }
        }
        findings
    }

    fn nobody(&self, end: End, (rank, id, peer): (u32, usize, u32), channel: u32, line: u32) -> Diagnostic {
        let (says, answers) = (end.says(), end.other().says());
        let what = format!("rank {rank} {says} rank {peer} on channel {channel}, where no thread block {answers} it");
        let finding = Diagnostic::new("AHBM-F128", what)
            .site(format!("rank {rank} block {id} {says} rank {peer}"), self.origin(rank, line).to_string());
        let mut near = self.numbered().filter(|(at, _, block)| *at == peer && end.other().peer(block) == Some(rank));
        let finding = match near.next() {
            Some((_, id, block)) => {
                let label = format!("rank {peer} block {id} {answers} rank {rank} on channel {}", block.channel);
                finding.site(label, self.origin(peer, block.line).to_string())
            }
            None => finding.site(format!("rank {peer}: no thread block {answers} rank {rank}"), ""),
        };
        finding.hint("every send needs a thread block of its peer that receives on the same channel, and the reverse")
    }

    /// Every thread block with its rank and its number.
    fn numbered(&self) -> impl Iterator<Item = (u32, usize, &Block)> {
        let ranks = (0u32..).zip(&self.ranks);
        ranks.flat_map(|(rank, work)| work.blocks.iter().enumerate().map(move |(id, block)| (rank, id, block)))
    }
}
