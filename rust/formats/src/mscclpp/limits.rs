//! Parts of a plan that a real executor would reject, overrun or misread.

use super::resolve::{At, Block};
use super::schema::{self, Kind, ReduceOp, ThreadBlock};
use ahbm_findings::Diagnostic;
use ahbm_plan::execution::{Action, ExecutionPlan, Form};
use ahbm_plan::{Protocol, Space};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Operations per thread block, inner ones included; the executor refuses more.
const OPS: usize = 64;
/// Entries of fixed arrays that the executor fills without looking.
const CHANNELS: usize = 16;
const IDS: usize = 8;
const REFS: usize = 10;
const BARRIERS: u32 = 16;
const SEMAPHORES: usize = 16;

const REFUSED: &str = "AHBM-F171";
const OVERRUN: &str = "AHBM-F172";
const DEVIATES: &str = "AHBM-F173";
const UNPAIRED: &str = "AHBM-F174";

/// Findings by message, each with its first place and how often it occurs.
pub(super) struct Warnings(IndexMap<(&'static str, String), (Diagnostic, u64), FxBuildHasher>);

impl Warnings {
    pub(super) fn new() -> Self {
        Self(IndexMap::default())
    }

    pub(super) fn push(&mut self, code: &'static str, at: &At, message: String) {
        let entry = self.0.entry((code, message));
        let message = entry.key().1.clone();
        entry.or_insert_with(|| (at.malformed(code, message), 0)).1 += 1;
    }

    pub(super) fn finish(self) -> Vec<Diagnostic> {
        let count = |(mut finding, times): (Diagnostic, u64)| {
            if times > 1 {
                finding.message = format!("{} ({times} times)", finding.message);
            }
            finding
        };
        self.0.into_values().map(count).collect()
    }

    /// Blames the statement that goes over a limit, where statements are known.
    pub(super) fn thread_block(&mut self, at: &mut At, written: &ThreadBlock<'_>, block: &Block<'_>) {
        let mut ops = written.ops.iter().flat_map(|op| std::iter::once(op).chain(&op.ops));
        if let Some(over) = ops.nth(OPS) {
            at.statement(Some(over.place));
            self.push(
                REFUSED,
                at,
                format!("more than {OPS} operations in a thread block: the executor refuses the plan"),
            );
        }
        let (channels, buffers) = block.lists();
        if channels > CHANNELS || buffers > CHANNELS {
            let uses = written.channels.iter().map(|list| &list.places);
            let uses = uses.chain(written.remote_buffer_refs.iter().map(|list| &list.places));
            at.statement(uses.filter_map(|places| places.get(CHANNELS)).min().copied());
            self.over(at, format!("more than {CHANNELS} channels or remote buffers of a kind in a thread block"));
        }
        at.statement(None);
    }

    fn over(&mut self, at: &At, what: String) {
        self.push(OVERRUN, at, format!("{what}: the executor overruns an array"));
    }

    fn deviates(&mut self, at: &At, what: &str) {
        self.push(DEVIATES, at, format!("{what}; --quirks does the same"));
    }

    pub(super) fn op(&mut self, at: &At, op: &schema::Op<'_>, in_loop: bool) {
        if op.channel_ids.len() > IDS {
            self.over(at, format!("more than {IDS} channels in one operation"));
        }
        if op.src_buff.len().max(op.dst_buff.len()) > REFS {
            self.over(at, format!("more than {REFS} buffers on one side of an operation"));
        }
        if op.barrier_id.is_some_and(|id| id >= BARRIERS) {
            self.over(at, format!("a barrier id of {BARRIERS} or more"));
        }
        if op.semaphore_ids.len() > SEMAPHORES {
            self.over(at, format!("more than {SEMAPHORES} semaphores in one operation"));
        }
        if matches!(op.reduce_op, Some(ReduceOp::Min | ReduceOp::Max)) {
            self.deviates(at, "the executor adds where reduce_op is min or max");
        }
        match &*op.name {
            "glre" => self.push(
                REFUSED,
                at,
                "glre, a switch reduction that is not fused with its broadcast: the executor refuses the plan"
                    .to_owned(),
            ),
            "get" if op.src_buff.iter().zip(&op.dst_buff).any(|(src, dst)| src.index != dst.index) => {
                self.deviates(at, "the executor exchanges the two indices of a get");
            }
            "put" if op.channel_type == Some(Kind::Memory) => {
                let types = op.src_buff.iter().map(|src| src.space.map(|space| Space::from(space) as u8));
                if types.clone().any(|space| Some(space) != types.clone().next()) {
                    self.deviates(at, "the executor reads every source of a put from the first one's buffer");
                }
            }
            "ppkt" if op.channel_type == Some(Kind::Port) && !op.src_buff.iter().all(schema::Ref::in_scratch) => {
                let message = "a port sends bytes as they are: from outside scratch they never become packets";
                self.push(DEVIATES, at, message.to_owned());
            }
            "pipeline" => {
                let covered = op.iter_context.map_or(0, |context| context.num_chunks);
                let short = |r: &schema::Ref| r.size < covered;
                if op.ops.iter().any(|op| op.src_buff.iter().chain(&op.dst_buff).any(short)) {
                    self.deviates(at, "an operation smaller than its loop: the executor runs past its end");
                }
            }
            _ if in_loop && op.name.ends_with("pkt") => {
                self.push(DEVIATES, at, "a packet operation in a loop moves its whole operand every time".to_owned());
            }
            _ => {}
        }
    }

    /// A group shares an operation of several chunks.
    pub(super) fn shared(&mut self, at: &At) {
        self.deviates(at, "the executor cuts the bytes of a group's operation at once, not every chunk of it");
    }

    pub(super) fn action(&mut self, at: &At, action: &Action) {
        let (Action::Signal(signals) | Action::Move { signals, .. }) = action else { return };
        if signals.iter().any(Option::is_none) {
            let message = "signal on a channel that has no counterpart at the peer: nobody can wait for it";
            self.push(UNPAIRED, at, message.to_owned());
        }
    }

    pub(super) fn plan(&mut self, at: &At, plan: &ExecutionPlan, empty_side: bool) {
        if empty_side {
            self.push(REFUSED, at, "input or output without chunks: the executor divides by their number".to_owned());
        }
        let (mut packets, mut plain_remote) = (false, false);
        plan.walk(|rank, op| {
            op.action.each_operand(|operand, written| {
                packets |= operand.form == Form::Packets;
                plain_remote |=
                    operand.form == Form::Plain && operand.space == Space::Scratch && (written && operand.rank != rank);
            });
        });
        if packets && plan.protocol == Protocol::Simple {
            self.over(at, "packets in a Simple plan, whose scratch is half of what they need".to_owned());
        }
        if plain_remote && plan.double_scratch {
            self.deviates(at, "every second launch writes plain data to the wrong half of a peer's scratch");
        }
    }
}
