//! The waist: a [`Program`] is what every source becomes and every run consumes.
//!
//! Read [`op`] for what an agent can do, [`body`] for how operations are stored and shared, [`program`]
//! for how agents, channels and buffers hang together, [`builder`] for how a source writes one,
//! [`mod@lint`] for what is checked before anything runs, and [`mod@job`] for how many programs become one.
//! Nothing here knows time.

pub mod body;
pub mod builder;
mod delayed;
mod hash;
pub mod job;
pub mod lint;
pub mod op;
pub mod origin;
pub mod program;
mod text;
pub mod tile;

pub use body::{Body, BodyBuilder, Mem, Scalar};
pub use builder::{ChannelSettings, ProgramBuilder};
pub use lint::{Operands, lint, structure};
pub use op::{BinaryFn, Op, OpKind, ReduceFn, UnaryFn, ValueId};
pub use origin::{Locus, Origin, OriginId, Origins};
pub use program::{Agent, AgentId, Buffer, BufferId, Channel, ChannelId, Duty, Gate, Program, WireFactor};
pub use tile::{Dtype, Tile};

/// Insertion-ordered tables with a quick, unseeded hash: their order never depends on it.
type Map<K, V> = indexmap::IndexMap<K, V, rustc_hash::FxBuildHasher>;
type Set<T> = indexmap::IndexSet<T, rustc_hash::FxBuildHasher>;
