//! The integration tests of this crate, in one binary.

mod faults;
mod neighbours;
mod routes;
mod topology;
