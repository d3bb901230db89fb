//! MSCCL++ execution plans (JSON).
//!
//! [`read()`] turns a file into an [`ahbm_plan::execution::ExecutionPlan`] whose references are resolved, [`write()`] the
//! reverse. [`resolve`] does it for a document that a program made. [`from_plan`] is the way from
//! thread-block plans.
//!
//! Reading order: `schema` (the file), `resolve`, `ends`, `limits` (what a real executor would choke on), `read`,
//! `write`.

mod ends;
mod from_plan;
mod limits;
mod read;
mod resolve;
pub mod schema;
mod write;

pub use from_plan::{ALIGNMENT, from_plan};
pub use read::{ReadOptions, read, resolve};
pub use write::write;
