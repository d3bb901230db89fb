//! The waist: a [`Program`] is what every source becomes and every run consumes.
//!
//! The shortest complete program: two agents, one channel, a send and a receive.
//!
//! ```
//! use ahbm_machine::{Coord, Direction, PeId};
//! use ahbm_program::{BodyBuilder, ChannelSettings, Comm, Dtype, Locus, Math, Origin, ProgramBuilder, Scalar, Tile};
//!
//! let mut builder = ProgramBuilder::new("hello");
//! let origin = builder.origins.intern(Origin { file: "hello.rs".into(), locus: Locus::Line(1) });
//! let east = Direction::parse("global_E").expect("a direction");
//! let west = Direction::parse("global_W").expect("a direction");
//!
//! // Eight ones go east.
//! let mut body = BodyBuilder::new();
//! let (value, one) = (body.value(), body.scalar(Scalar::Int(1)));
//! let (tile, dir) = (body.tile(Tile::new(Dtype::F16, &[8])), body.direction(east));
//! body.push(Math::Fill { dst: value, scalar: one, tile }, 1, origin);
//! body.push(Comm::Send { dir, src: value, tile }, 1, origin);
//! let sends = builder.body(body.finish());
//!
//! // They come from the west.
//! let mut body = BodyBuilder::new();
//! let (value, tile, dir) = (body.value(), body.tile(Tile::new(Dtype::F16, &[8])), body.direction(west));
//! body.push(Comm::Recv { dir, dst: value, tile }, 1, origin);
//! let receives = builder.body(body.finish());
//!
//! let place = |sip| Coord { sip, cube: 0, pe: 0 };
//! let sender = builder.thread_block(0, place(0), PeId(0), sends, &[]);
//! let receiver = builder.thread_block(1, place(1), PeId(1), receives, &[]);
//! builder.connect((sender, east), (receiver, west));
//!
//! // A queue of four slots as large as its largest message, in the first memory that the machine has for slots.
//! let settings = ChannelSettings { slots: 4, slot_bytes: None, tier: 0, credit_bytes: 16 };
//! let program = builder.finish(settings)?;
//! assert!(ahbm_program::structure(&program).is_empty());
//! // One message needs one slot.
//! assert_eq!((program.channels.len(), program.channels[0].slots, program.channels[0].slot_bytes), (1, 1, 16));
//! # Ok::<(), Vec<ahbm_findings::Diagnostic>>(())
//! ```
//!
//! Reading order: [`op`] (what an agent can do, who waits for whom, what changes with a new operation), [`body`] (how
//! operations are stored and shared), [`class`] (how one recorded call of a kernel becomes the bodies of many agents, by
//! the [`formula`]s behind its numbers), [`program`] (how agents, channels and buffers hang together), [`builder`] (how a
//! source writes one), [`mod@lint`] (what is checked before anything runs), and [`mod@job`] (how many programs become
//! one, of which [`marks`] tell what a piece of memory waits for). Nothing here knows time.

pub mod body;
pub mod builder;
pub mod class;
mod delayed;
pub mod formula;
mod hash;
pub mod job;
pub mod lint;
pub mod marks;
mod mems;
pub mod op;
pub mod origin;
pub mod program;
mod shared;
mod text;
pub mod tile;

pub use body::{Body, BodyBuilder, Scalar};
pub use builder::{ChannelSettings, ProgramBuilder};
pub use class::{Class, Condition};
pub use formula::{Formulas, Term};
pub use lint::{Operands, lint, structure};
pub use mems::{ByBuffer, Mem, Mems};
pub use op::{BinaryFn, Comm, Control, Math, Move, Op, OpKind, ReduceFn, UnaryFn, ValueId};
pub use origin::{Locus, Origin, OriginId, Origins};
pub use program::{Agent, AgentId, Buffer, BufferId, Channel, ChannelId, Duty, Gate, Program, WireFactor};
pub use shared::Shared;
pub use tile::{Dtype, Tile};

/// Insertion-ordered tables with a quick, unseeded hash: their order never depends on it.
type Map<K, V> = indexmap::IndexMap<K, V, rustc_hash::FxBuildHasher>;
type Set<T> = indexmap::IndexSet<T, rustc_hash::FxBuildHasher>;
