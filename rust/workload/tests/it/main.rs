//! Integration tests of the workload graph.

mod crossings;
mod replicas;
mod transformer;
