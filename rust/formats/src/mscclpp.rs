//! MSCCL++ execution plans (JSON).
//!
//! [`read`] turns a file into a [`Plan`] whose references are resolved; [`Plan::lower`] turns a plan into a
//! program for so many bytes on a machine. A thread block is an agent. All memory operations are one-sided:
//! copies, loads and stores on any rank's buffers. A channel's end is a counter: the k-th wait on it waits for the
//! k-th signal. Packets carry their own arrival: writing some bytes of scratch as packets signals a counter that
//! reading them waits for. Loops are unrolled.
//!
//! What differs from a GPU, by design:
//!
//! * what a thread block puts at another rank is posted: the block goes on when the last byte has left, through a
//!   port as through memory, and its source may change then;
//! * a signal has no cost of its own: it arrives with the last byte that its thread block has put before it, through
//!   whichever channel; a flush, a barrier and the end of a thread block wait for those bytes, a semaphore does not;
//! * packets occupy memory of their own and travel as payload plus as many bytes of flags;
//! * a switch reduces and broadcasts as loads and stores to every member, not inside the network;
//! * relaxed signals order memory like the others.
//!
//! Reading order: `schema` (the file), `model` (the plan), `resolve`, `layout` (bytes), `packets`, `lower`.

mod body;
mod ends;
mod from_plan;
mod layout;
mod limits;
mod lower;
mod model;
mod packets;
mod read;
mod resolve;
mod schema;
mod to_plan;
mod write;

pub use from_plan::{ALIGNMENT, from_plan};
pub use lower::Launch;
pub use model::{Action, End, Form, Kind, Op, Operand, Plan, Rank, Share, Words};
pub use read::{ReadOptions, read};
pub use write::write;
