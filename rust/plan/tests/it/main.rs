//! The integration tests of this crate, in one binary.

mod builder;
mod raise;
mod transfers;
