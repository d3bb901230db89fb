//! What a check can follow: elements of one size, unions, and a bounded number of steps.

use super::CheckOptions;
use ahbm_machine::Diagnostic;
use ahbm_program::{AgentId, BinaryFn, Body, BufferId, OpKind, Program, Scalar};
use std::ops::Range;

/// The cells of a program: every buffer's elements, numbered through.
#[derive(Debug)]
pub(super) struct Cells {
    /// Bytes of an element.
    element: u64,
    /// First cell of each buffer, and the number of all.
    base: Vec<usize>,
}

impl Cells {
    /// The cells of a structurally sound program, once it is known to be one that contributions can follow and
    /// that stays within the budget.
    pub(super) fn of(program: &Program, options: &CheckOptions) -> Result<Self, Diagnostic> {
        let users = first_users(program);
        let mut element = None;
        let mut cost_of_body = vec![0u64; program.bodies.len()];
        for (index, body) in program.bodies.iter().enumerate() {
            let Some(user) = users[index] else { continue };
            follow(program, body, user, &mut element)?;
            cost_of_body[index] = cost(body);
        }
        let element = element.unwrap_or(1);
        let mut base = Vec::with_capacity(program.buffers.len() + 1);
        let mut total = 0u64;
        for buffer in &program.buffers {
            base.push(total as usize);
            total = total.saturating_add(buffer.bytes.div_ceil(element));
        }
        base.push(total as usize);
        let once = program.agents.iter().fold(total, |n, a| n.saturating_add(cost_of_body[a.body as usize]));
        let all = once.saturating_mul(options.orders.max(1).into());
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
        Ok(Self { element, base })
    }

    /// Number of cells.
    pub(super) fn len(&self) -> usize {
        self.base.last().copied().unwrap_or(0)
    }

    /// A cell by buffer and element.
    pub(super) fn at(&self, buffer: BufferId, element: u64) -> Option<usize> {
        let (start, end) = (self.base[buffer.0 as usize], self.base[buffer.0 as usize + 1]);
        usize::try_from(element).ok().and_then(|e| start.checked_add(e)).filter(|&cell| cell < end)
    }

    /// Buffer and element of a cell.
    pub(super) fn place(&self, cell: usize) -> (BufferId, u64) {
        let buffer = self.base.partition_point(|&start| start <= cell) - 1;
        (BufferId(buffer as u32), (cell - self.base[buffer]) as u64)
    }

    /// The cells of a memory operand.
    pub(super) fn operand(&self, program: &Program, agent: AgentId, mem: u32, tile: u32) -> Range<usize> {
        let body = program.body(agent);
        let mem = body.mems[mem as usize];
        let start = self.base[program.buffer(agent, mem.buffer).0 as usize] + (mem.offset / self.element) as usize;
        start..start + body.tiles[tile as usize].elements() as usize
    }
}

/// `rank 3 block 1`: an agent by its rank and its number among the rank's.
pub(super) fn name(program: &Program, agent: AgentId) -> String {
    let rank = program.agents[agent.0 as usize].rank;
    let block = program.agents[..agent.0 as usize].iter().filter(|a| a.rank == rank).count();
    format!("rank {rank} block {block}")
}

/// Adds an operation as a side of a finding.
pub(super) fn site(program: &Program, finding: Diagnostic, agent: AgentId, op: usize) -> Diagnostic {
    finding.site(format!("{}: {}", name(program, agent), program.describe(agent, op)), program.origin_text(agent, op))
}

fn first_users(program: &Program) -> Vec<Option<AgentId>> {
    let mut users = vec![None; program.bodies.len()];
    for (index, agent) in program.agents.iter().enumerate() {
        users[agent.body as usize].get_or_insert(AgentId(index as u32));
    }
    users
}

/// Steps of a body: one per operation and one per element it touches.
fn cost(body: &Body) -> u64 {
    let elements = |op: &ahbm_program::Op| op.kind.operands().tile.map_or(0, |t| body.tiles[t as usize].elements());
    body.ops.iter().fold(0, |n, op| n.saturating_add(1).saturating_add(elements(op)))
}

fn follow(program: &Program, body: &Body, user: AgentId, element: &mut Option<u64>) -> Result<(), Diagnostic> {
    for (index, op) in body.ops.iter().enumerate() {
        let refuse = |why: &str| {
            let what = program.describe(user, index);
            let finding = Diagnostic::new("AHBM-U290", format!("a check cannot follow `{what}`: {why}"));
            Err(site(program, finding, user, index))
        };
        match op.kind {
            OpKind::Load { .. }
            | OpKind::Store { .. }
            | OpKind::Copy { .. }
            | OpKind::Cast { .. }
            | OpKind::Send { .. }
            | OpKind::AwaitSlot { .. }
            | OpKind::Recv { .. }
            | OpKind::Binary { f: BinaryFn::Add | BinaryFn::Mul | BinaryFn::Max | BinaryFn::Min, .. }
            | OpKind::Signal { .. }
            | OpKind::WaitCounter { .. }
            | OpKind::Acquire { .. }
            | OpKind::Barrier { .. }
            | OpKind::Delay { .. } => {}
            OpKind::Fill { scalar, .. } => {
                if !matches!(body.scalars[scalar as usize], Scalar::Int(0))
                    && body.scalars[scalar as usize].as_f64() != 0.0
                {
                    return refuse("only zero has no contributions");
                }
            }
            _ => return refuse("only copies, messages and reductions have a meaning for contributions"),
        }
        let operands = op.kind.operands();
        let Some(tile) = operands.tile.map(|t| &body.tiles[t as usize]) else { continue };
        let bytes = tile.dtype.bytes();
        if *element.get_or_insert(bytes) != bytes {
            return refuse("elements of different sizes");
        }
        let mut mems = operands.mem_read.into_iter().chain(operands.mem_written);
        if mems.any(|m| !body.mems[m as usize].offset.is_multiple_of(bytes)) {
            return refuse("the offset is not a whole number of elements");
        }
    }
    Ok(())
}
