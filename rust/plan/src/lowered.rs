//! The form that a plan takes on a machine.

use crate::RankBuffers;
use ahbm_program::Program;

/// A plan as a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Lowered {
    /// The program that runs.
    pub program: Program,
    /// Operand, result and scratch of every rank that takes part.
    pub ranks: Vec<RankBuffers>,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// The programs that further launches run, in turn, if those differ from `program`.
    pub later: Vec<Program>,
}

impl Lowered {
    /// A program without operands and results.
    pub const fn without_buffers(program: Program, chunk_bytes: u64) -> Self {
        Self { program, ranks: Vec::new(), chunk_bytes, later: Vec::new() }
    }
}
