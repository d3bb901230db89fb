//! The operations on values alone, in a replay.

use super::image::Image;
use super::replay::{Replay, Slot};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, Math, OpKind};

impl<'p, I: Image<'p>> Replay<'p, '_, I> {
    /// Operations on values alone.
    pub(super) fn compute(&mut self, agent: AgentId, op: usize, math: Math) -> Result<(), Diagnostic> {
        let program = self.program;
        let body = program.body(agent);
        let live = &self.liveness[program.agents[agent.0 as usize].body as usize];
        let mut values = [const { None }; 3];
        for (i, value) in OpKind::Math(math).operands().reads.into_iter().enumerate() {
            if let Some(value) = value {
                values[i] = Some(self.operand(agent, op, i, value)?);
            }
        }
        let tile = &body.tiles[math.tile() as usize];
        let result_tile = live.results.get(&(op as u32)).unwrap_or(tile);
        let Some(result) = self.image.apply(body, math, values, tile, result_tile) else { return Ok(()) };
        let value = result.map_err(|fault| fault.at(program, agent, op))?;
        self.define(agent, math.dst(), Slot::Value(value));
        Ok(())
    }
}
