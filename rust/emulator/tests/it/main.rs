//! The integration tests of this crate, in one binary.

mod data_ops;
mod data_schedule;
mod inspect;
mod job;
mod recipe;
mod reference;
mod support;
mod switch;
mod timing;
mod why;
