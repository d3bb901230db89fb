//! Integration tests of the workload graph.

mod alike;
mod calls;
mod copies;
mod crossings;
mod dimensions;
mod replicas;
mod together;
mod transformer;
