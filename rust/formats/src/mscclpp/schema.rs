//! The file as it is written: names and types, nothing resolved.

use ahbm_plan::Space;
pub(super) use ahbm_plan::execution::Kind;
use ahbm_program::BinaryFn;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Serialize, Deserialize)]
pub(super) struct Document<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) collective: Cow<'a, str>,
    pub(super) protocol: Protocol,
    pub(super) inplace: bool,
    #[serde(default)]
    pub(super) reuse_resources: bool,
    #[serde(borrow)]
    pub(super) gpus: Vec<Gpu<'a>>,
    #[serde(default)]
    pub(super) use_double_scratch_buffer: bool,
    #[serde(default = "sixteen")]
    pub(super) buffer_alignment: u64,
    #[serde(default)]
    pub(super) min_message_size: u64,
    #[serde(default = "unlimited")]
    pub(super) max_message_size: u64,
}

const fn sixteen() -> u64 {
    16
}

const fn unlimited() -> u64 {
    u64::MAX
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) enum Protocol {
    Simple,
    #[serde(rename = "LL")]
    Ll,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Gpu<'a> {
    pub(super) id: u32,
    pub(super) input_chunks: u32,
    pub(super) output_chunks: u32,
    pub(super) scratch_chunks: u32,
    #[serde(borrow)]
    pub(super) threadblocks: Vec<ThreadBlock<'a>>,
    pub(super) channels: Vec<Channel>,
    #[serde(default)]
    pub(super) remote_buffers: Vec<RemoteBuffer>,
    #[serde(default)]
    pub(super) semaphores: Vec<Semaphore>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Channel {
    pub(super) channel_type: Kind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) connected_to: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) buffer_type: Option<BufferType>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) rank_groups: Vec<RankGroup>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RankGroup {
    #[serde(default)]
    pub(super) size: u32,
    pub(super) ranks: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RemoteBuffer {
    pub(super) rank: u32,
    #[serde(rename = "type")]
    pub(super) space: BufferType,
    #[serde(default)]
    pub(super) access_channel_types: Vec<Kind>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Semaphore {
    pub(super) init_value: u32,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) enum BufferType {
    #[serde(rename = "i")]
    Input,
    #[serde(rename = "o")]
    Output,
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

#[derive(Serialize, Deserialize)]
pub(super) struct ThreadBlock<'a> {
    #[serde(default)]
    pub(super) id: u32,
    #[serde(borrow)]
    pub(super) ops: Vec<Op<'a>>,
    #[serde(default)]
    pub(super) channels: Vec<ChannelIds>,
    #[serde(default)]
    pub(super) remote_buffer_refs: Vec<RemoteBufferIds>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChannelIds {
    pub(super) channel_type: Kind,
    pub(super) channel_ids: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RemoteBufferIds {
    pub(super) access_channel_type: Kind,
    pub(super) remote_buffer_ids: Vec<u32>,
}

#[derive(Serialize, Deserialize, Default)]
pub(super) struct Op<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) src_buff: Vec<Ref>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) dst_buff: Vec<Ref>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) channel_ids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) channel_type: Option<Kind>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) semaphore_ids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) barrier_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) num_threadblocks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reduce_op: Option<ReduceOp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tbg_info: Option<Group>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) iter_context: Option<Iteration>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ops: Vec<Op<'a>>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReduceOp {
    Sum,
    Min,
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
    pub(super) const fn of(function: BinaryFn) -> Option<Self> {
        match function {
            BinaryFn::Add => Some(Self::Sum),
            BinaryFn::Min => Some(Self::Min),
            BinaryFn::Max => Some(Self::Max),
            _ => None,
        }
    }
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct Group {
    pub(super) tb_id: u32,
    pub(super) tbg_size: u32,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct Iteration {
    pub(super) unit_size: u64,
    pub(super) num_chunks: u32,
}

/// A reference to chunks: local (`type`), remote (`buffer_id`) or of a switch group (`switch_channel_id`).
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(super) struct Ref {
    /// Whose chunks; written for the source of a switch broadcast alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<u32>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) space: Option<BufferType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) buffer_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) switch_channel_id: Option<u32>,
    pub(super) index: u32,
    pub(super) size: u32,
}

impl Ref {
    /// True for chunks of the rank's own scratch.
    pub(super) fn in_scratch(&self) -> bool {
        matches!(self.space, Some(BufferType::Scratch))
    }
}
