//! The order in which a run touches memory.

use super::memory::Memory;
use super::replay::Prepared;
use crate::{NEVER, Timeline};
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use ahbm_program::{AgentId, Program};

/// An operation's access to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// When.
    pub at: Ps,
    /// Whose.
    pub agent: AgentId,
    /// The operation.
    pub op: u32,
    /// The arrival of what the operation has posted: it writes then, and reads before.
    pub landing: bool,
}

/// The accesses of a replay, if somebody wants them.
pub(super) type Observer = Option<Vec<Access>>;

/// Adds what an operation has just done.
pub(super) fn observe(
    observer: &mut Observer,
    program: &Program,
    at: Ps,
    (agent, op): (AgentId, usize),
    landing: bool,
) {
    let Some(accesses) = observer else { return };
    let body = program.body(agent);
    let access = Access { at, agent, op: op as u32, landing };
    // One value lands at several places at once.
    if body.touched(body.ops[op].kind).next().is_some() && accesses.last() != Some(&access) {
        accesses.push(access);
    }
}

impl Prepared {
    /// The accesses to memory in the order in which they happen, and whether what is posted is written when it arrives,
    /// by an access of its own, and not at once. Replays on `memory` where agents share memory; else the order follows
    /// from the times, and `memory` stays as it is.
    ///
    /// # Errors
    /// As [`Self::replay`]; `AHBM-D191` for a timeline without spans.
    pub fn accesses(
        &self,
        program: &Program,
        timeline: &Timeline,
        memory: &mut Memory,
    ) -> Result<(Vec<Access>, bool), Diagnostic> {
        let mut observer = Some(Vec::new());
        if self.parts.ordered {
            self.in_turn(&self.parts.agents, program, timeline, memory, &mut observer)?;
            return Ok((observer.unwrap_or_default(), true));
        }
        super::replay::recorded(program, timeline)?;
        for (agent, spans) in timeline.spans.iter().enumerate() {
            ahbm_engine::interrupt::spend(8 * spans.len() as u64);
            for (op, span) in spans.iter().enumerate().take_while(|(_, span)| span.end != NEVER) {
                observe(&mut observer, program, span.end, (AgentId(agent as u32), op), false);
            }
        }
        let mut accesses = observer.unwrap_or_default();
        accesses.sort_by_key(|access| access.at);
        Ok((accesses, false))
    }
}
