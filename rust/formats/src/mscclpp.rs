//! MSCCL++ execution plans (JSON).
//!
//! [`read()`] turns a file into an [`ahbm_plan::execution::ExecutionPlan`] whose references are resolved, [`write()`] the
//! reverse. [`resolve`] does it for a document that a program made. [`to_plan`] and [`from_plan`] are the ways from and to thread-block plans.
//!
//! Reading order: `schema` (the file), `resolve`, `ends`, `limits` (what a real executor would choke on), `read`,
//! `write`.

mod ends;
mod from_plan;
mod limits;
mod read;
mod resolve;
pub mod schema;
mod to_plan;
mod write;

pub use from_plan::{ALIGNMENT, from_plan};
pub use read::{ReadOptions, read, resolve};
pub use to_plan::to_plan;
pub use write::write;
