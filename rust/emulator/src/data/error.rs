//! The errors of the data pass.

use ahbm_machine::Diagnostic;
use ahbm_program::{AgentId, Program, Tile};

/// A finding at one operation.
pub(super) fn at(program: &Program, code: &'static str, message: String, agent: AgentId, op: usize) -> Diagnostic {
    site(program, Diagnostic::new(code, message), agent, op)
}

/// Adds the side of an operation.
pub(super) fn site(program: &Program, found: Diagnostic, agent: AgentId, op: usize) -> Diagnostic {
    let coord = program.agents[agent.0 as usize].coord;
    found.site(format!("{coord}: {}", program.describe(agent, op)), program.origin_text(agent, op))
}

/// `AHBM-B301`.
pub(super) fn too_large(what: &str, bytes: u64) -> Diagnostic {
    Diagnostic::new("AHBM-B301", format!("{what} of {bytes} bytes does not fit this computer's memory"))
        .hint("run the timing alone, or use smaller tensors for the data pass")
}

/// Why an operation cannot be computed; the place is added by the caller.
#[derive(Debug)]
pub(super) enum Fault {
    /// The operand does not have the dtype or size the operation expects.
    Operand { found: Tile, expected: Tile },
    /// Shapes that do not broadcast to the result's.
    Broadcast { found: Tile, expected: Tile },
    /// Integer division by zero at this element.
    DivideByZero { element: usize },
    /// The function has no meaning on these operands.
    Undefined(String),
    /// The host cannot hold the result.
    TooLarge(u64),
}

impl From<u64> for Fault {
    fn from(bytes: u64) -> Self {
        Self::TooLarge(bytes)
    }
}

impl Fault {
    pub(super) fn at(self, program: &Program, agent: AgentId, op: usize) -> Diagnostic {
        let found = match self {
            Self::Operand { found, expected } => {
                Diagnostic::new("AHBM-V303", format!("an operand is {found}, the operation expects {expected}"))
                    .hint("cast or reshape the operand first")
            }
            Self::Broadcast { found, expected } => {
                Diagnostic::new("AHBM-V305", format!("an operand of shape {found} does not broadcast to {expected}"))
                    .hint("extents must be equal or 1, aligned at the last axis, as in NumPy")
            }
            Self::DivideByZero { element } => {
                Diagnostic::new("AHBM-V310", format!("integer division by zero at element {element}"))
                    .hint("mask zero divisors with tl.where or divide in a floating-point dtype")
            }
            Self::Undefined(why) => Diagnostic::new("AHBM-V311", why).hint("cast to a floating-point dtype first"),
            Self::TooLarge(bytes) => too_large("a value", bytes),
        };
        site(program, found, agent, op)
    }
}
