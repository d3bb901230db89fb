//! The errors of the data pass.

use ahbm_findings::Diagnostic;
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

/// Code and hint of what the host cannot hold.
const TOO_LARGE: (&str, &str) = ("AHBM-B301", "run the timing alone, or use smaller tensors for the data pass");

/// `AHBM-B301`.
pub(super) fn too_large(what: &str, bytes: u64) -> Diagnostic {
    let (code, hint) = TOO_LARGE;
    Diagnostic::new(code, format!("{what} of {bytes} bytes does not fit this computer's memory")).hint(hint)
}

/// Why an operation cannot be computed; the place is added by the caller.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The operand does not have the dtype or size the operation expects.
    #[error("an operand is {found}, the operation expects {expected}")]
    Operand { found: Tile, expected: Tile },
    /// Shapes that do not broadcast to the result's.
    #[error("an operand of shape {found} does not broadcast to {expected}")]
    Broadcast { found: Tile, expected: Tile },
    /// Integer division by zero at this element.
    #[error("integer division by zero at element {element}")]
    DivideByZero { element: usize },
    /// The function has no meaning on these operands.
    #[error("{what}")]
    Undefined { what: String, hint: &'static str },
    /// The host cannot hold the result.
    #[error("a value of {0} bytes does not fit this computer's memory")]
    TooLarge(u64),
}

impl From<u64> for Fault {
    fn from(bytes: u64) -> Self {
        Self::TooLarge(bytes)
    }
}

impl Fault {
    /// A function that floats alone have.
    pub(super) fn floats_only(f: impl std::fmt::Debug, tile: &Tile) -> Self {
        let what = format!("{f:?} is not defined on {}", tile.dtype).to_lowercase();
        Self::Undefined { what, hint: "cast to a floating-point dtype first" }
    }

    /// A function that integers alone have.
    pub(super) fn integers_only(f: impl std::fmt::Debug, tile: &Tile) -> Self {
        let what = format!("{f:?} is not defined on {}", tile.dtype).to_lowercase();
        Self::Undefined { what, hint: "cast to an integer dtype first" }
    }

    /// Extents that the function does not take.
    pub(super) fn extents(what: String) -> Self {
        Self::Undefined { what, hint: "give the operation operands of other extents" }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Operand { .. } => "AHBM-V303",
            Self::Broadcast { .. } => "AHBM-V305",
            Self::DivideByZero { .. } => "AHBM-V310",
            Self::Undefined { .. } => "AHBM-V311",
            Self::TooLarge(_) => TOO_LARGE.0,
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Operand { .. } => "cast or reshape the operand first",
            Self::Broadcast { .. } => "extents must be equal or 1, aligned at the last axis, as in NumPy",
            Self::DivideByZero { .. } => "mask zero divisors with tl.where or divide in a floating-point dtype",
            Self::Undefined { hint, .. } => hint,
            Self::TooLarge(_) => TOO_LARGE.1,
        }
    }

    pub(super) fn at(self, program: &Program, agent: AgentId, op: usize) -> Diagnostic {
        site(program, Diagnostic::new(self.code(), self.to_string()).hint(self.hint()), agent, op)
    }
}
