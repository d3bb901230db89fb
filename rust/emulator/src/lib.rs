//! Program × Machine → Timeline → data.
//!
//! Pass 1 ([`simulate`]) says when, pass 2 ([`replay`]) says what.

mod timeline;

pub use timeline::{Span, Timeline};
