//! Bring your own algorithm: files the field already writes, to and from the waist.
//!
//! A reader turns bytes into a plan that knows no machine; lowering a plan onto a machine gives an
//! [`ahbm_program::Program`]. What every reader promises, whatever the bytes:
//!
//! 1. It is bounded by a [`Budget`] before it allocates: over it is `AHBM-B2xx`, with the option that raises it.
//! 2. Malformed input is `AHBM-F1xx` with a line, a JSON pointer or a byte offset; an operation that exists
//!    but is not supported is `AHBM-U2xx` and names it. Nothing is dropped in silence.
//! 3. Every operation of the program knows where it was written.
//!
//! Reading order: [`budget`], [`collective`] (what a correct answer is), then one module per format;
//! [`document`] is all of them behind one door, [`convert`] the way from one to another. The other way round, runs
//! become files: [`chakra`] traces, and timelines to look at ([`tracks`], written by [`perfetto`] and [`chrome`]).

pub mod budget;
pub mod chakra;
pub mod chrome;
pub mod collective;
pub mod convert;
pub mod document;
pub mod format;
pub mod msccl_xml;
pub mod mscclpp;
pub mod perfetto;
pub mod plan;
mod scan;
pub mod store;
pub mod tracks;
mod wire;

pub use budget::{Budget, Limit};
pub use collective::Collective;
pub use document::{Document, Reading};
pub use format::Format;
pub use plan::{LowerOptions, Lowered, Plan, Protocol, RankBuffers, Reduction, Region};
