//! The file as it is written: names and types, nothing resolved.

use ahbm_plan::Space;
pub use ahbm_plan::execution::Kind;
use ahbm_program::BinaryFn;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The whole file.
#[derive(Serialize, Deserialize)]
pub struct Document<'a> {
    /// Name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Name of the collective, without underscores.
    #[serde(borrow)]
    pub collective: Cow<'a, str>,
    /// How data travel.
    pub protocol: Protocol,
    /// Input and output are one memory.
    pub inplace: bool,
    /// Scratch is the executor's own.
    #[serde(default)]
    pub reuse_resources: bool,
    /// One entry per rank.
    #[serde(borrow)]
    pub gpus: Vec<Gpu<'a>>,
    /// Threads of every thread block; nothing that runs depends on it.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub num_threads_per_block: Option<u64>,
    /// Launches alternate between two halves of scratch.
    #[serde(default)]
    pub use_double_scratch_buffer: bool,
    /// Bytes that sizes are multiples of.
    #[serde(default = "sixteen")]
    pub buffer_alignment: u64,
    /// Smallest message, bytes.
    #[serde(default)]
    pub min_message_size: u64,
    /// Largest message, bytes.
    #[serde(default = "unlimited")]
    pub max_message_size: u64,
}

const fn sixteen() -> u64 {
    16
}

const fn unlimited() -> u64 {
    u64::MAX
}

/// How data travel.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Data as they are.
    Simple,
    /// Data with flags.
    #[serde(rename = "LL")]
    Ll,
}

/// A rank.
#[derive(Serialize, Deserialize)]
pub struct Gpu<'a> {
    /// Number, from 0.
    pub id: u32,
    /// Chunks of the input.
    pub input_chunks: u32,
    /// Chunks of the output.
    pub output_chunks: u32,
    /// Chunks of scratch.
    pub scratch_chunks: u32,
    /// Thread blocks.
    #[serde(borrow)]
    pub threadblocks: Vec<ThreadBlock<'a>>,
    /// Channels, by kind.
    pub channels: Vec<Channel>,
    /// Buffers of other ranks.
    #[serde(default)]
    pub remote_buffers: Vec<RemoteBuffer>,
    /// Semaphores.
    #[serde(default)]
    pub semaphores: Vec<Semaphore>,
}

/// The channels of one kind that a rank has, or one switch channel.
#[derive(Serialize, Deserialize)]
pub struct Channel {
    /// Kind of the channels.
    pub channel_type: Kind,
    /// The rank at the other end of each channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connected_to: Vec<u32>,
    /// The switch channel's buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_type: Option<BufferType>,
    /// The ranks of each switch channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rank_groups: Vec<RankGroup>,
}

/// The ranks of a switch channel.
#[derive(Serialize, Deserialize)]
pub struct RankGroup {
    /// Number of them.
    #[serde(default)]
    pub size: u32,
    /// Which ranks.
    pub ranks: Vec<u32>,
}

/// A buffer of another rank.
#[derive(Serialize, Deserialize)]
pub struct RemoteBuffer {
    /// Whose.
    pub rank: u32,
    /// Which buffer.
    #[serde(rename = "type")]
    pub space: BufferType,
    /// How it is reached.
    #[serde(default)]
    pub access_channel_types: Vec<Kind>,
}

/// A semaphore of a rank.
#[derive(Serialize, Deserialize)]
pub struct Semaphore {
    /// Initial value.
    pub init_value: u32,
}

/// Which buffer of a rank.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferType {
    /// Operand.
    #[serde(rename = "i")]
    Input,
    /// Result.
    #[serde(rename = "o")]
    Output,
    /// Scratch.
    #[serde(rename = "s")]
    Scratch,
}

impl From<Space> for BufferType {
    fn from(space: Space) -> Self {
        match space {
            Space::Input => Self::Input,
            Space::Output => Self::Output,
            Space::Scratch => Self::Scratch,
        }
    }
}

impl From<BufferType> for Space {
    fn from(written: BufferType) -> Self {
        match written {
            BufferType::Input => Self::Input,
            BufferType::Output => Self::Output,
            BufferType::Scratch => Self::Scratch,
        }
    }
}

/// A thread block.
#[derive(Serialize, Deserialize)]
pub struct ThreadBlock<'a> {
    /// Number, from 0.
    #[serde(default)]
    pub id: u32,
    /// Operations.
    #[serde(borrow)]
    pub ops: Vec<Op<'a>>,
    /// Channels, by kind.
    #[serde(default)]
    pub channels: Vec<ChannelIds>,
    /// Remote buffers, by how they are reached.
    #[serde(default)]
    pub remote_buffer_refs: Vec<RemoteBufferIds>,
}

/// The channels of one kind that a thread block uses.
#[derive(Serialize, Deserialize)]
pub struct ChannelIds {
    /// Kind of the channels.
    pub channel_type: Kind,
    /// Channels: the rank's in a list of a thread block, the thread block's in an operation.
    pub channel_ids: Vec<u32>,
    /// Places at which they are first used, as in [`Op::place`].
    #[serde(skip)]
    pub places: Vec<u32>,
}

/// The remote buffers that a thread block reaches in one way.
#[derive(Serialize, Deserialize)]
pub struct RemoteBufferIds {
    /// How they are reached.
    pub access_channel_type: Kind,
    /// Which of the rank's remote buffers.
    pub remote_buffer_ids: Vec<u32>,
    /// Places at which they are first used, as in [`Op::place`].
    #[serde(skip)]
    pub places: Vec<u32>,
}

/// An operation; which fields it has depends on its name.
#[derive(Serialize, Deserialize, Default)]
pub struct Op<'a> {
    /// Name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub src_buff: Vec<Ref>,
    /// Destinations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dst_buff: Vec<Ref>,
    /// Channels: the rank's in a list of a thread block, the thread block's in an operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channel_ids: Vec<u32>,
    /// Kind of the channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_type: Option<Kind>,
    /// Semaphores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub semaphore_ids: Vec<u32>,
    /// Which barrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier_id: Option<u32>,
    /// Participants of the barrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_threadblocks: Option<u32>,
    /// The reduction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduce_op: Option<ReduceOp>,
    /// The part of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tbg_info: Option<Group>,
    /// The extent of the loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iter_context: Option<Iteration>,
    /// Operations.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<Op<'a>>,
    /// The buffer of a reduction by a switch alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_type: Option<BufferType>,
    /// Its first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_offset: Option<u32>,
    /// Its number of chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Its destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst_chunk: Option<Ref>,
    /// Index into the list of the statements that wrote it, where there is one.
    #[serde(skip)]
    pub place: u32,
}

/// A reduction.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
}

impl From<ReduceOp> for BinaryFn {
    fn from(written: ReduceOp) -> Self {
        match written {
            ReduceOp::Sum => Self::Add,
            ReduceOp::Min => Self::Min,
            ReduceOp::Max => Self::Max,
        }
    }
}

impl ReduceOp {
    /// `None` for a reduction that no plan names.
    pub const fn of(function: BinaryFn) -> Option<Self> {
        match function {
            BinaryFn::Add => Some(Self::Sum),
            BinaryFn::Min => Some(Self::Min),
            BinaryFn::Max => Some(Self::Max),
            _ => None,
        }
    }
}

/// The part of a thread block in a group.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Position in the group.
    pub tb_id: u32,
    /// Size of the group.
    pub tbg_size: u32,
}

/// The extent of a loop.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iteration {
    /// Bytes per iteration.
    pub unit_size: u64,
    /// Chunks that the iterations cover.
    pub num_chunks: u32,
}

/// A reference to chunks: local (`type`), remote (`buffer_id`) or of a switch group (`switch_channel_id`).
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ref {
    /// Whose chunks; written for the source of a switch broadcast alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Which buffer.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub space: Option<BufferType>,
    /// Which of the thread block's remote buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_id: Option<u32>,
    /// Which of the thread block's switch channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_channel_id: Option<u32>,
    /// First chunk.
    pub index: u32,
    /// Number of them.
    pub size: u32,
}

impl Ref {
    /// True for chunks of the rank's own scratch.
    pub fn in_scratch(&self) -> bool {
        matches!(self.space, Some(BufferType::Scratch))
    }
}
