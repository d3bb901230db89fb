//! The MSCCL++ DSL: a program is recorded statement by statement, and lowered to an execution plan.
//!
//! [`Recorder`] has one method per statement of the language. [`Recorder::lower`] makes the document of the plan, as
//! the language's own compiler does and in its order: it counts signals and waits, fuses neighbouring operations, lets
//! the threads of a block meet where the author or the data ask for it, and copies everything for every instance. Where
//! that compiler does something else than the program says, [`crate::Faith`] decides.
//!
//! Reading order: `model`, `fits`, `record`, `counts`, `fuse`, `meet`, `access`, `replicate`, `notes`, `lower`.

mod access;
mod counts;
mod fits;
mod fuse;
mod lower;
mod meet;
mod model;
mod notes;
mod record;
mod replicate;

pub use lower::{Lowered, text};
pub use model::{Channel, Chunk, Meet, Settings};
pub use record::{Barriers, Recorder, Transfer, Workers};
