//! The integration tests of this crate, in one binary.

mod blocks;
mod calls;
mod collectives;
mod verdicts;
