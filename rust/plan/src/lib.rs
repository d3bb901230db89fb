//! The second waist: what an algorithm does, before it is known on which machine and for how many bytes.
//!
//! Readers, the synthesizer and authors end in a plan; a plan is lowered to an [`ahbm_program::Program`]. Two models
//! cover the field: thread blocks that send and receive ([`Plan`]), and one-sided operations with semaphores
//! ([`execution::ExecutionPlan`]). An [`Algorithm`] is either, or messages of which only the sizes are known.
//!
//! Reading order: [`collective`] (what a correct answer is), [`Goal`] (what a plan says it computes) and [`expectation`]
//! (the same about the memory of a program), [`buffers`] (whose memory is where), [`blocks`] and [`execution`] (the two models, each with its way to a
//! program), [`PlanBuilder`] (a
//! plan from an author), [`Captured`] (a plan from kernels), [`options`] (what a plan leaves open), [`budget`] (what data from strangers may ask for).

mod algorithm;
pub mod blocks;
pub mod budget;
pub mod buffers;
mod builder;
pub mod collective;
pub mod execution;
pub mod expectation;
mod goal;
mod lowered;
pub mod options;
mod raise;

pub use algorithm::{Algorithm, Messages};
pub use blocks::{Plan, Transfer, Transfers};
pub use budget::{Budget, Limit};
pub use buffers::{Extents, RankBuffers, Region, Space};
pub use builder::{BlockId, PlanBuilder, StepId, StepSpec};
pub use collective::{Collective, Contribution};
pub use expectation::{Expectation, Held, Observed, Reduced, SetId};
pub use goal::Goal;
pub use lowered::Lowered;
pub use options::{BY_PROTOCOL, LowerOptions, Protocol, Reduction, Site};
pub use raise::Captured;
