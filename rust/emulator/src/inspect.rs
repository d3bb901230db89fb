//! What happened inside a run: where an element came from, where it went, and who did what at a time.
//!
//! A run is deterministic, so nothing is kept while it runs. The order in which memory was touched follows from its
//! times, or from a replay of its data ([`crate::Prepared::accesses`]). Everything else about an element is in the program: an agent executes its
//! operations one after the other, and the n-th message sent is the n-th received. [`Flow`] walks from one element to
//! the next, so the cost follows the history of that element and not the size of the run.
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-B124` | a history of more steps than asked for |
//! | `AHBM-D191` | the timeline was not recorded |
//!
//! Reading order: [`Flow`] (`elements`: which elements an operation makes an element of), `history` (backwards and
//! forwards), [`State`].

mod elements;
mod flow;
mod history;
mod state;

pub use flow::{Flow, Spot};
pub use history::{Fate, Origin, Source, Use};
pub use state::{Doing, Held, Phase, Queue, State};
