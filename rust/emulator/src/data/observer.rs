//! The order in which a run touches memory.

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
