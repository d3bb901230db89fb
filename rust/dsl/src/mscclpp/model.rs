//! What a program recorded: operations of thread blocks, with the statements that made them.

use ahbm_formats::mscclpp::schema::{Kind, Protocol, ReduceOp};
use ahbm_plan::Space;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// A map in order of insertion.
pub(super) type Map<K, V> = IndexMap<K, V, FxBuildHasher>;

/// What a program says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Name of the collective, as plans have it.
    pub collective: String,
    /// How data travel.
    pub protocol: Protocol,
    /// Input and output are one memory.
    pub in_place: bool,
    /// Copies of every thread block.
    pub instances: u32,
    /// Neighbouring operations become one.
    pub fuse: bool,
    /// Threads of a block meet where an operation needs another's data.
    pub auto_sync: bool,
    /// Scratch is the executor's own.
    pub reuse_resources: bool,
    /// Threads of every thread block.
    pub threads: u64,
    /// Launches alternate between two halves of scratch.
    pub double_scratch: bool,
    /// Bytes that sizes are multiples of.
    pub alignment: u64,
    /// Smallest message, bytes.
    pub min_bytes: u64,
    /// Largest message, bytes.
    pub max_bytes: u64,
}

/// A channel between two ranks, at the end of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// Memory or port.
    pub kind: Kind,
    /// Which of the rank's channels of the kind.
    pub id: u32,
    /// Whose end.
    pub src: u32,
    /// The other end.
    pub dst: u32,
}

/// Operations, by the name a plan has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Nop,
    Barrier,
    Acquire,
    Release,
    Signal,
    Wait,
    RelaxedSignal,
    RelaxedWait,
    Flush,
    Copy,
    CopyPackets,
    Unpack,
    Get,
    Put,
    PutPackets,
    ReadPutPackets,
    PutSignal,
    PutSignalFlush,
    Reduce,
    ReduceSend,
    ReadReduce,
    ReadReduceSend,
    ReducePackets,
    ReduceSendPackets,
    ReduceCopyPackets,
    ReduceCopySendPackets,
    SwitchReduce,
    SwitchReduceStore,
    SwitchStore,
    SwitchStorePackets,
    Loop,
}

impl Code {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nop => "nop",
            Self::Barrier => "barrier",
            Self::Acquire => "sem_acquire",
            Self::Release => "sem_release",
            Self::Signal => "signal",
            Self::Wait => "wait",
            Self::RelaxedSignal => "rlxsignal",
            Self::RelaxedWait => "rlxwait",
            Self::Flush => "flush",
            Self::Copy => "copy",
            Self::CopyPackets => "cpkt",
            Self::Unpack => "upkt",
            Self::Get => "get",
            Self::Put => "put",
            Self::PutPackets => "ppkt",
            Self::ReadPutPackets => "rppkt",
            Self::PutSignal => "pws",
            Self::PutSignalFlush => "pwsf",
            Self::Reduce => "re",
            Self::ReduceSend => "res",
            Self::ReadReduce => "rre",
            Self::ReadReduceSend => "rres",
            Self::ReducePackets => "repkt",
            Self::ReduceSendPackets => "respkt",
            Self::ReduceCopyPackets => "recpkt",
            Self::ReduceCopySendPackets => "recspkt",
            Self::SwitchReduce => "glre",
            Self::SwitchReduceStore => "glres",
            Self::SwitchStore => "gstore",
            Self::SwitchStorePackets => "gstorepkt",
            Self::Loop => "pipeline",
        }
    }

    /// True for the operations that the threads of a block may meet before and after.
    pub(super) const fn synchronises(self) -> bool {
        matches!(
            self,
            Self::Acquire
                | Self::Release
                | Self::Signal
                | Self::Wait
                | Self::RelaxedSignal
                | Self::RelaxedWait
                | Self::Flush
        )
    }

    /// True for the operations that reduce packets.
    pub(super) const fn reduces_packets(self) -> bool {
        matches!(
            self,
            Self::ReducePackets | Self::ReduceSendPackets | Self::ReduceCopyPackets | Self::ReduceCopySendPackets
        )
    }

    /// True for the operations that reduce.
    pub(super) const fn reduces(self) -> bool {
        let plain = matches!(
            self,
            Self::Reduce
                | Self::ReduceSend
                | Self::ReadReduce
                | Self::ReadReduceSend
                | Self::SwitchReduce
                | Self::SwitchReduceStore
        );
        plain || self.reduces_packets()
    }
}

/// When the threads of a block meet around an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meet {
    /// Before it.
    pub before: bool,
    /// After it.
    pub after: bool,
}

/// Consecutive chunks of a rank's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Whose.
    pub rank: u32,
    /// Which buffer.
    pub space: Space,
    /// First chunk.
    pub index: u32,
    /// Number of chunks.
    pub size: u32,
    /// Which of the program's objects says so; operations of a switch share it with the author.
    pub object: u32,
}

impl Chunk {
    /// True for the same memory.
    pub(super) fn same(&self, other: &Self) -> bool {
        (self.rank, self.space, self.index, self.size) == (other.rank, other.space, other.index, other.size)
    }
}

/// How an operation names chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// As a buffer of the rank itself.
    Own,
    /// As one of the thread block's remote buffers.
    Remote(u32),
    /// As those of one of the thread block's switch channels.
    Switch(u32),
    /// With the name of their rank: the local end of a switch operation.
    Named,
}

/// An operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ref {
    pub(super) via: Via,
    pub(super) chunk: Chunk,
}

impl Ref {
    pub(super) const fn own(chunk: Chunk) -> Self {
        Self { via: Via::Own, chunk }
    }
}

/// The part of a thread block in a group: its position, the group's size.
pub(super) type Part = (u32, u32);

/// An operation of a thread block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Op {
    pub(super) code: Code,
    pub(super) kind: Kind,
    /// A reduction's own operand is the first.
    pub(super) src: Vec<Ref>,
    /// A reduction's own result is the first, its copy as packets the second.
    pub(super) dst: Vec<Ref>,
    /// Channels of the thread block, semaphores, or the barrier.
    pub(super) ids: Vec<u32>,
    pub(super) meet: Meet,
    pub(super) function: ReduceOp,
    pub(super) part: Option<Part>,
    /// Participants of a barrier.
    pub(super) blocks: u32,
    pub(super) body: Option<Box<Body>>,
    /// The statement that made it.
    pub(super) place: u32,
    /// The statements of the operations that it has taken in.
    pub(super) also: Vec<u32>,
}

/// The extent of a loop and what it repeats.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Body {
    pub(super) unit: u64,
    pub(super) chunks: u32,
    pub(super) ops: Vec<Op>,
}

impl Op {
    pub(super) const fn new(code: Code, place: u32) -> Self {
        Self {
            code,
            kind: Kind::None,
            src: Vec::new(),
            dst: Vec::new(),
            ids: Vec::new(),
            meet: Meet { before: false, after: false },
            function: ReduceOp::Sum,
            part: None,
            blocks: 0,
            body: None,
            place,
            also: Vec::new(),
        }
    }

    /// It, and what it repeats.
    pub(super) fn body(&self) -> &[Self] {
        self.body.as_ref().map_or(&[], |body| &body.ops)
    }
}

/// A thread block: its operations and what they refer to, by first use.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Block {
    pub(super) ops: Vec<Op>,
    /// Channels of the rank by kind, with the statement that first used them.
    pub(super) channels: Vec<(Kind, Map<u32, u32>)>,
    /// Remote buffers of the rank by way, with the statement that first used them.
    pub(super) remote: Vec<(Kind, Map<u32, u32>)>,
}

/// The position of `id` in the list of its kind.
pub(super) fn listed(lists: &mut Vec<(Kind, Map<u32, u32>)>, kind: Kind, id: u32, place: u32) -> u32 {
    let at = lists.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
        lists.push((kind, Map::default()));
        lists.len() - 1
    });
    let entry = lists[at].1.entry(id);
    let index = entry.index() as u32;
    entry.or_insert(place);
    index
}

/// A rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Gpu {
    /// Chunks of input, output and scratch.
    pub(super) chunks: [u32; 3],
    /// The peer of each memory and port channel; kinds by first use.
    pub(super) peers: Vec<(Kind, Vec<u32>)>,
    /// Buffer and ranks of each switch channel.
    pub(super) switches: Vec<(Space, Vec<u32>)>,
    /// Initial values.
    pub(super) semaphores: Vec<u32>,
    /// Buffers of other ranks, and the ways to them.
    pub(super) remote: Map<(u32, Space), Vec<Kind>>,
    pub(super) blocks: Vec<Block>,
}

impl Gpu {
    /// The ranks of the switch channel that a thread block has at position `id`.
    pub(super) fn group(&self, block: &Block, id: u32) -> &[u32] {
        let ids = block.channels.iter().find(|(kind, _)| *kind == Kind::Switch);
        let switch = ids.and_then(|(_, ids)| ids.get_index(id as usize));
        switch.and_then(|(&id, _)| self.switches.get(id as usize)).map_or(&[], |(_, ranks)| ranks)
    }
}

/// A buffer, for people.
pub(super) fn named(space: Space) -> &'static str {
    match space {
        Space::Input => "input",
        Space::Output => "output",
        Space::Scratch => "scratch",
    }
}
