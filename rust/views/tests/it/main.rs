//! The integration tests of this crate, in one binary.

mod credit;
mod executed;
mod features;
