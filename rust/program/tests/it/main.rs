//! The integration tests of this crate, in one binary.

mod builder;
mod lint;
mod text;
