//! Integration tests of ASTRA-sim's numbers.

mod closed_forms;
mod corpus;
mod refusals;
mod schedule;
mod setups;
