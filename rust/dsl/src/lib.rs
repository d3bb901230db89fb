//! Languages for collective algorithms: what a program of a foreign language recorded, lowered to a plan.
//!
//! A front end in Python calls a recorder once per statement. Lowering does what the language's own compiler does, in
//! its order, so that a program gives the plan that its authors know. Every step of the plan keeps the statements that
//! made it.
//!
//! - [`mscclpp`]: the MSCCL++ DSL, whose programs become execution plans.
//! - [`msccl`]: MSCCLang, whose programs become thread-block plans.

mod fault;
pub mod msccl;
pub mod mscclpp;
mod statements;

pub use fault::{Fault, Raised};
pub use statements::Statements;

/// Whose behaviour counts where a compiler does something else than the program says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faith {
    /// What was meant.
    #[default]
    Meant,
    /// What the language's own compiler does, its defects included.
    AsIs,
}
