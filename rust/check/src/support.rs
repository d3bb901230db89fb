//! The subject of a check, its names, and its costs.

use crate::CheckOptions;
use ahbm_findings::Diagnostic;
use ahbm_machine::Machine;
use ahbm_program::{AgentId, Body, BufferId, ChannelId, OpKind, Program};
use std::ops::Range;

/// A program that is issued some times in a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'p> {
    /// The first launch.
    pub(crate) program: &'p Program,
    /// The programs of the launches after it, in turn; the same program when this is empty.
    pub(crate) later: &'p [Program],
    /// The machine its agents run on; `None` for thread blocks without a machine.
    pub(crate) machine: Option<&'p Machine>,
    /// Launches, at least one.
    pub(crate) calls: u32,
}

/// An operation that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) agent: AgentId,
    pub(crate) op: u32,
    /// Which launch it belongs to.
    pub(crate) call: u32,
    /// The message it sends, takes, or has posted a receive for: its channel, and its number on it.
    pub(crate) message: Option<(ChannelId, u64)>,
}

impl<'p> Subject<'p> {
    /// One launch of a program, somewhere.
    pub(crate) fn once(program: &'p Program) -> Self {
        Self { program, later: &[], machine: None, calls: 1 }
    }

    /// The program that runs in a call.
    pub(crate) fn launch(&self, call: u32) -> &'p Program {
        match call.checked_sub(1) {
            Some(n) if !self.later.is_empty() => &self.later[n as usize % self.later.len()],
            _ => self.program,
        }
    }

    /// All programs that are launched.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &'p Program> + Clone + use<'p> {
        std::iter::once(self.program).chain(self.later.iter().take(self.calls as usize - 1))
    }

    /// The body of an agent in a call.
    pub(crate) fn body(&self, agent: AgentId, call: u32) -> &'p Body {
        self.launch(call).body(agent)
    }

    /// `sip 3 cube 0 pe 1`, an agent that has its PE to itself; else `rank 3 block 1`, by its number among the rank's.
    pub(crate) fn name(&self, agent: AgentId) -> String {
        let agents = &self.program.agents;
        let own = &agents[agent.0 as usize];
        if let Some(machine) = self.machine
            && agents.iter().filter(|a| a.place == own.place).count() == 1
        {
            return own.name(machine);
        }
        let block = agents[..agent.0 as usize].iter().filter(|a| a.rank == own.rank).count();
        format!("rank {} block {block}", own.rank)
    }

    /// `sip 3 cube 0 pe 1: store f16[8]`, and the call unless it is the first.
    pub(crate) fn describe(&self, step: &Step) -> String {
        let what = self.launch(step.call).describe(step.agent, step.op as usize);
        let call = if step.call > 0 { format!(" in call {}", step.call + 1) } else { String::new() };
        format!("{}: {what}{call}", self.name(step.agent))
    }

    /// Adds an operation as a side of a finding.
    pub(crate) fn site(&self, finding: Diagnostic, step: &Step) -> Diagnostic {
        finding.site(self.describe(step), self.launch(step.call).origin_text(step.agent, step.op as usize))
    }

    /// Adds two operations, which may be of different calls, as the sides of a finding.
    pub(crate) fn sites(&self, finding: Diagnostic, one: &Step, other: &Step) -> Diagnostic {
        let mut finding = self.site(self.site(finding, one), other);
        if one.call != other.call {
            for (site, step) in finding.sites.iter_mut().zip([one, other]).filter(|(_, step)| step.call == 0) {
                site.label += &format!(" in call {}", step.call + 1);
            }
        }
        finding
    }

    /// Refuses what takes more steps than the budget.
    pub(crate) fn affordable(&self, options: &CheckOptions) -> Result<(), Diagnostic> {
        let cost: Vec<u64> = self.program.bodies.iter().map(|body| cost(body)).collect();
        let once = self.program.agents.iter().fold(0u64, |n, a| n.saturating_add(cost[a.body as usize]));
        let all = once.saturating_mul(u64::from(options.orders.max(1)) * u64::from(self.calls));
        if all > options.max_steps {
            return Err(Diagnostic::new(
                "AHBM-B210",
                format!(
                    "the check takes {all} steps over {} orders, the limit is {}",
                    options.orders, options.max_steps
                ),
            )
            .hint(format!("--limit check_steps={all} raises it")));
        }
        Ok(())
    }
}

/// The bytes of a memory operand.
pub(crate) fn bytes(program: &Program, agent: AgentId, mem: u32, tile: u32) -> (BufferId, Range<u64>) {
    let body = program.body(agent);
    let mem = body.mems.at(mem);
    (program.buffer(agent, mem.buffer), mem.offset..mem.offset + body.tiles[tile as usize].bytes())
}

/// The bytes an operation touches, and whether it writes them.
pub(crate) fn touches(
    program: &Program,
    agent: AgentId,
    kind: OpKind,
) -> impl Iterator<Item = (BufferId, Range<u64>, bool)> + '_ {
    let tile = kind.operands().tile;
    program.body(agent).touched(kind).filter_map(move |(mem, writes)| {
        let (buffer, range) = bytes(program, agent, mem, tile?);
        Some((buffer, range, writes))
    })
}

/// Steps of a body: an operation is one, or one per value and memory operand.
fn cost(body: &Body) -> u64 {
    body.ops.iter().fold(0, |n, op| {
        let read = op.kind.operands().reads.iter().flatten().count();
        n.saturating_add(1 + (read + body.touched(op.kind).count()) as u64)
    })
}
