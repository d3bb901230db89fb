//! The integration tests of this crate, in one binary.

mod fabrics;
mod faults;
mod neighbours;
mod protocols;
mod relays;
mod routes;
mod topology;
