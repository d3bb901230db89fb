//! Channels as numbered queues, and the thread blocks at their ends.

use super::script::{Act, Script};
use super::{Captured, origin};
use crate::{BlockId, PlanBuilder};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, ChannelId, OriginId, Program};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// The numbers of a program's channels; those of one rank to another are 0, 1, 2, …
pub(super) struct Queues {
    numbers: Vec<u32>,
}

/// The thread blocks of an agent.
pub(super) struct Blocks {
    /// Per channel that it sends on, and per channel that it receives on.
    pub(super) sends: FxHashMap<ChannelId, BlockId>,
    pub(super) receives: FxHashMap<ChannelId, BlockId>,
    /// Where steps without a message go before the first with one; it has no posted receives.
    pub(super) first: Option<BlockId>,
    /// Those with posted receives, behind which nothing else may wait.
    pub(super) posted: Vec<BlockId>,
}

/// The first operation on a channel, and whether one on it is a posted receive.
#[derive(Clone, Copy)]
struct Use {
    origin: OriginId,
    posted: bool,
}

type Uses = IndexMap<ChannelId, Use, FxBuildHasher>;

impl Queues {
    pub(super) fn of(program: &Program) -> Self {
        let mut next: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let rank = |agent: AgentId| program.agents[agent.0 as usize].rank;
        let number = |channel: &ahbm_program::Channel| {
            let next = next.entry((rank(channel.sender), rank(channel.receiver))).or_default();
            *next += 1;
            *next - 1
        };
        Self { numbers: program.channels.iter().map(number).collect() }
    }

    /// A thread block for every channel that the agent sends on, together with one of the same number that it receives
    /// on, and one for each of the others.
    pub(super) fn blocks(
        &self,
        given: &Captured<'_>,
        agent: AgentId,
        script: &Script,
        plan: &mut PlanBuilder,
    ) -> Result<Blocks, Diagnostic> {
        let (mut sends, mut receives) = (Uses::default(), Uses::default());
        for &(act, origin) in &script.acts {
            let (list, channel, posted) = match act {
                Act::Send { channel, .. } => (&mut sends, channel, false),
                Act::Recv { channel, .. } => (&mut receives, channel, false),
                Act::Post { channel, .. } => (&mut receives, channel, true),
                _ => continue,
            };
            list.entry(channel).or_insert(Use { origin, posted }).posted |= posted;
        }
        let mut partners: FxHashMap<u32, Vec<ChannelId>> = FxHashMap::default();
        for (&channel, _) in receives.iter().rev().filter(|(_, used)| !used.posted) {
            partners.entry(self.number(channel)).or_default().push(channel);
        }
        let program = given.program;
        let rank = |agent: AgentId| program.agents[agent.0 as usize].rank;
        let from = |channel: ChannelId| rank(program.channels[channel.0 as usize].sender);
        let to = |channel: ChannelId| rank(program.channels[channel.0 as usize].receiver);
        let mut blocks =
            Blocks { sends: FxHashMap::default(), receives: FxHashMap::default(), first: None, posted: Vec::new() };
        for (&channel, used) in &sends {
            let number = self.number(channel);
            let partner = partners.get_mut(&number).and_then(Vec::pop);
            let at = origin(given, used.origin);
            let block = plan.block(rank(agent), Some(to(channel)), partner.map(from), number, at)?;
            blocks.sends.insert(channel, block);
            blocks.first.get_or_insert(block);
            if let Some(partner) = partner {
                blocks.receives.insert(partner, block);
            }
        }
        for (&channel, used) in &receives {
            if blocks.receives.contains_key(&channel) {
                continue;
            }
            let at = origin(given, used.origin);
            let block = plan.block(rank(agent), None, Some(from(channel)), self.number(channel), at)?;
            blocks.receives.insert(channel, block);
            if used.posted {
                blocks.posted.push(block);
            } else {
                blocks.first.get_or_insert(block);
            }
        }
        Ok(blocks)
    }

    fn number(&self, channel: ChannelId) -> u32 {
        self.numbers[channel.0 as usize]
    }
}
