//! Program × Machine → Timeline → data.
//!
//! Pass 1 ([`simulate`]) says when, pass 2 ([`replay`]) says what.

pub mod data;
mod timeline;
mod timing;

pub use data::{Memory, replay};
pub use timeline::{Span, Timeline};
pub use timing::{Options, simulate};
