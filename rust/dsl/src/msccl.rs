//! MSCCLang: programs that move chunks by reference, lowered to thread-block plans.
//!
//! A [`Recording`] keeps what the statements of a program said: an operation per end of a transfer, the operations that
//! come before each ([`record`]), and where every chunk of the input is ([`values`]). [`lower()`] makes a plan of it, in
//! the order of the language's own compiler, ties included:
//!
//! 1. [`fuse`]: a receive and the send of what it brought become one step.
//! 2. [`order`]: steps by distance from the start, distance to the end, and index.
//! 3. [`channels`], by [`flows`], then [`assign`]: which queue and which thread block.
//! 4. [`replicate`]: how instances share the buffers. [`waits`]: what a step waits for outside its thread block.
//! 5. [`lower`]: the plan, with the line of the statement at every step.
//!
//! Everything is iterative, and near linear in the number of operations and of the edges between them.

pub mod assign;
pub mod channels;
pub mod flows;
pub mod fuse;
pub mod graph;
pub mod lower;
pub mod order;
pub mod record;
pub mod refusal;
pub mod replicate;
pub mod values;
pub mod waits;

pub use lower::{Lowered, Options, lower};
pub use record::{Place, Recording, Start, Transfer};
pub use refusal::{Kind, Refusal};
