//! Integration tests of the workload graph.

mod calls;
mod crossings;
mod replicas;
mod transformer;
