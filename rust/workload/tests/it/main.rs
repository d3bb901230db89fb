//! Integration tests of the workload graph.

mod alike;
mod calls;
mod crossings;
mod dimensions;
mod replicas;
mod transformer;
