//! Checks before every run. All findings at once, each with its origin and a hint.
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-L100` | tail: how many findings of each code were left out |
//! | `AHBM-L103` | memory operand outside its buffer |
//! | `AHBM-L104` | sends and receives of a queue differ in number |
//! | `AHBM-L105` | message larger than the slots of its queue |
//! | `AHBM-L107` | the k-th send and the k-th receive of a queue differ in bytes or dtype |
//! | `AHBM-L108` | buffers and slots over the capacity of a memory |
//! | `AHBM-L109` | value read before it is defined |
//! | `AHBM-L110` | index out of range (a source wrote a malformed program) |
//! | `AHBM-L111` | queue without slots |
//!
//! `AHBM-L101`, `L102` and `L106` are raised by the [builder](crate::builder) itself. Checks run once per
//! distinct list of operations and once per channel, so their cost follows the distinct text of a program, not the
//! number of agents.

mod bounds;
mod findings;
mod memory;
mod operands;
mod shape;
mod target;
#[cfg(test)]
mod tests;
mod traffic;
mod values;

pub use operands::Operands;

use crate::body::alike;
use crate::{AgentId, Program};
use ahbm_findings::Diagnostic;
use ahbm_machine::Machine;
use findings::Findings;
use target::Target;

/// Everything wrong with a program that can be seen without running it, at most 50 findings and one
/// `AHBM-L100` tail; empty when it may run. Deterministic order.
///
/// A malformed program (`AHBM-L110`) is reported alone: the other checks rely on sound indices.
pub fn lint(program: &Program, machine: &Machine) -> Vec<Diagnostic> {
    lint_for(program, &Target::of(machine))
}

fn lint_for(program: &Program, target: &Target<'_>) -> Vec<Diagnostic> {
    let mut findings = Findings::default();
    let alike = alike(program.bodies.iter().map(|body| &**body));
    shape::check(program, &alike, &mut findings);
    shape::check_places(program, target, &mut findings);
    if findings.is_empty() {
        values::check(program, &alike, &mut findings);
        bounds::check(program, &alike, &mut findings);
        traffic::check(program, &alike, &mut findings);
        memory::check(program, target, &mut findings);
    }
    findings.finish(program)
}

/// The part of [`lint`] that needs no machine and that running a program relies on: sound indices
/// (`AHBM-L110`), operands inside their buffers (`AHBM-L103`), values defined before use (`AHBM-L109`).
///
/// After an empty answer every index a body uses is in range for every agent.
pub fn structure(program: &Program) -> Vec<Diagnostic> {
    let mut findings = Findings::default();
    let alike = alike(program.bodies.iter().map(|body| &**body));
    shape::check(program, &alike, &mut findings);
    if findings.is_empty() {
        values::check(program, &alike, &mut findings);
        bounds::check(program, &alike, &mut findings);
    }
    findings.finish(program)
}

/// `sip 0 cube 3 pe 0: send(dir="E") f16[512]`, for bodies whose indices are sound.
fn label(program: &Program, agent: AgentId, op: usize) -> String {
    format!("{}: {}", program.agents[agent.0 as usize].coord, program.describe(agent, op))
}

/// The first agent that runs each body or one that is alike; bodies nobody runs are left out of every check, and so are
/// those that are like one before.
fn first_users(program: &Program, alike: &[u32]) -> Vec<Option<AgentId>> {
    let mut users = vec![None; program.bodies.len()];
    for (index, agent) in program.agents.iter().enumerate() {
        let body = alike.get(agent.body as usize).map_or(agent.body, |&first| first);
        if let Some(user @ None) = users.get_mut(body as usize) {
            *user = Some(AgentId(index as u32));
        }
    }
    users
}
