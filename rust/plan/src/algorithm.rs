//! An algorithm in any of the models: what readers, authors and the synthesizer hand on.

use crate::execution::{ExecutionPlan, Launch};
use crate::{Budget, Goal, LowerOptions, Lowered, Plan, Protocol};
use ahbm_findings::Diagnostic;
use ahbm_machine::Machine;
use ahbm_program::Program;
use std::fmt::Debug;
use std::sync::Arc;

/// An algorithm, whatever it was written as.
#[derive(Debug, Clone)]
pub enum Algorithm {
    /// Thread blocks that send and receive.
    Blocks(Plan),
    /// One-sided operations with semaphores.
    Execution(ExecutionPlan),
    /// Messages of which only the sizes are known.
    Messages(Arc<dyn Messages>),
}

/// Messages and what they wait for; nobody knows which bytes they carry.
pub trait Messages: Debug + Send + Sync {
    /// What it says that it computes.
    fn goal(&self) -> Goal;

    /// Number of ranks.
    fn ranks(&self) -> u64;

    /// As a program on a machine, whose messages are zeros.
    ///
    /// # Errors
    /// The errors of lowering its format.
    fn lower(&self, machine: &Machine, options: &LowerOptions) -> Result<Program, Vec<Diagnostic>>;

    /// As a program without a machine, one element per message, whose queues hold `slots`.
    ///
    /// # Errors
    /// As [`Messages::lower`], but for machine and sizes.
    fn lower_for_check(&self, slots: u32, budget: &Budget) -> Result<Program, Vec<Diagnostic>>;

    /// Why it has no operand and no result.
    fn without_buffers(&self) -> Diagnostic;
}

impl Algorithm {
    /// The computation that it describes.
    pub fn goal(&self) -> Goal {
        match self {
            Self::Blocks(plan) => plan.goal,
            Self::Execution(plan) => plan.goal,
            Self::Messages(messages) => messages.goal(),
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        match self {
            Self::Blocks(plan) => plan.ranks.len() as u64,
            Self::Execution(plan) => plan.ranks.len() as u64,
            Self::Messages(messages) => messages.ranks(),
        }
    }

    /// The sizes in bytes that it is meant for, as it says: the least, and the most, `None` for any.
    pub fn sizes(&self) -> (u64, Option<u64>) {
        let (least, most) = match self {
            Self::Blocks(plan) => (plan.min_bytes.unwrap_or(0), plan.max_bytes),
            Self::Execution(plan) => (plan.min_bytes, Some(plan.max_bytes)),
            Self::Messages(_) => (0, None),
        };
        // 0 and the greatest number are how files say that there is no limit.
        (least, most.filter(|&most| most != 0 && most != u64::MAX))
    }

    /// Sizes, in bytes of the larger of operand and result, are multiples of this for elements of `item` bytes.
    pub fn unit(&self, item: u64) -> u64 {
        match self {
            Self::Blocks(plan) => u64::from(plan.chunks).saturating_mul(item),
            Self::Execution(plan) => plan.alignment.saturating_mul(plan.chunks.into()),
            Self::Messages(_) => 1,
        }
    }

    /// Messages that a queue holds where `slots` are asked for, under the algorithm's own protocol or another; `None`
    /// without queues.
    pub fn depth(&self, slots: u32, protocol: Option<Protocol>) -> Option<u32> {
        let own = match self {
            Self::Blocks(plan) => plan.protocol,
            Self::Execution(_) => return None,
            Self::Messages(_) => Protocol::Simple,
        };
        Some(protocol.unwrap_or(own).depth(slots))
    }

    /// Whether it runs with input and output in one memory.
    pub const fn in_place(&self) -> bool {
        match self {
            Self::Blocks(plan) => plan.in_place,
            Self::Execution(plan) => plan.in_place,
            Self::Messages(_) => false,
        }
    }

    /// Whether it is for calls whose input and output are two memories.
    pub const fn out_of_place(&self) -> bool {
        match self {
            Self::Blocks(plan) => plan.out_of_place,
            _ => !self.in_place(),
        }
    }

    /// True when it says which bytes go where.
    pub const fn has_buffers(&self) -> bool {
        !matches!(self, Self::Messages(_))
    }

    /// As a program on a machine. One without buffers has messages of zeros, no operands and no results.
    ///
    /// # Errors
    /// The errors of lowering its model.
    pub fn lower(&self, machine: &Machine, options: &LowerOptions) -> Result<Lowered, Vec<Diagnostic>> {
        match self {
            Self::Blocks(plan) => plan.lower(machine, options),
            Self::Execution(plan) => plan.in_turn(Launch::ODD, |launch| plan.lower(machine, options, launch)),
            Self::Messages(messages) => Ok(Lowered::without_buffers(messages.lower(machine, options)?, 0)),
        }
    }
}
