//! The nodes of a graph.

use crate::Kernel;

/// A collective operation, in the order of Chakra's `CollectiveCommType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Collective {
    AllReduce,
    Reduce,
    AllGather,
    Gather,
    Scatter,
    Broadcast,
    AllToAll,
    ReduceScatter,
    ReduceScatterBlock,
    Barrier,
}

impl Collective {
    /// Every collective, by its number in the schema.
    pub const ALL: [Self; 10] = [
        Self::AllReduce,
        Self::Reduce,
        Self::AllGather,
        Self::Gather,
        Self::Scatter,
        Self::Broadcast,
        Self::AllToAll,
        Self::ReduceScatter,
        Self::ReduceScatterBlock,
        Self::Barrier,
    ];

    /// The name that `torch.distributed` and this project use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Reduce => "reduce",
            Self::AllGather => "all_gather",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all_to_all",
            Self::ReduceScatter => "reduce_scatter",
            Self::ReduceScatterBlock => "reduce_scatter_block",
            Self::Barrier => "barrier",
        }
    }

    /// What is performed: the two names of a reduce_scatter are one operation, whose every rank gets one chunk.
    pub const fn performed(self) -> Self {
        match self {
            Self::ReduceScatterBlock => Self::ReduceScatter,
            other => other,
        }
    }

    /// Whether one rank is the source or the target of all.
    pub const fn is_rooted(self) -> bool {
        matches!(self, Self::Reduce | Self::Gather | Self::Scatter | Self::Broadcast)
    }

    /// By name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|collective| collective.name() == name)
    }
}

/// A part that a rank has in a collective operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallSpec {
    /// The operation.
    pub collective: Collective,
    /// Slot of the group: a position in [`crate::Rank::groups`].
    pub group: u32,
    /// One chunk for all_gather and gather, else all that a rank has.
    pub bytes: u64,
    /// Elements that the rank sends to each rank of the group, where the source says how they are split.
    pub sends: Option<Box<[u64]>>,
    /// Elements that the rank receives from each, likewise.
    pub receives: Option<Box<[u64]>>,
    /// Elements that go in and come out at the rank, where the source states both.
    pub through: Option<[u64; 2]>,
    /// Element type, where the source states it.
    pub dtype: Option<Box<str>>,
    /// Reduction operator, where the source states it.
    pub op: Option<Box<str>>,
    /// Global rank of the root, where the source states it.
    pub root: Option<u32>,
    /// The dimensions of the network that take part, where the source states them.
    pub dimensions: Option<Box<[bool]>>,
}

impl CallSpec {
    /// A part of which only the operation and the group are known.
    pub const fn new(collective: Collective, group: u32) -> Self {
        Self {
            collective,
            group,
            bytes: 0,
            sends: None,
            receives: None,
            through: None,
            dtype: None,
            op: None,
            root: None,
            dimensions: None,
        }
    }

    /// Most elements that the rank sends to one rank, or receives from one, where the source says how they are split.
    pub fn longest(&self) -> Option<u64> {
        [&self.sends, &self.receives].into_iter().flatten().flat_map(|list| list.iter().copied()).max()
    }
}

/// A point-to-point message, as one of its ends sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageSpec {
    /// Slot of the other end: a position in [`crate::Rank::peers`].
    pub peer: u32,
    /// Slot of the group, as of a call; none where the source states none.
    pub group: Option<u32>,
    /// Size.
    pub bytes: u64,
    /// What tells messages between two ranks apart.
    pub tag: u32,
}

/// A chunk of a call of the same rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartSpec {
    /// Position of the call's node.
    pub call: u32,
    /// The chunk, of as many as the group has ranks, in the order of the group.
    pub chunk: u32,
    /// The node ends when the chunk is complete at this rank; else the call may read the chunk from its end on.
    pub completes: bool,
}

/// The work of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Work {
    /// Takes no time: an event that others wait for.
    Nothing,
    /// Computes; where [`Node::ps`] is 0, the machine's roofline says how long.
    Compute(Kernel),
    /// Moves bytes between a rank and its remote memory.
    Memory {
        /// Writes; else reads.
        store: bool,
        /// Bytes moved.
        bytes: u64,
    },
    /// Takes part in a collective: a position in [`crate::Graph::specs`].
    Call(u32),
    /// Sends a message.
    Send(MessageSpec),
    /// Receives a message.
    Recv(MessageSpec),
    /// Waits for a chunk of a call, or delivers one.
    Part(PartSpec),
}

/// A node of a rank's graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// Unique in its graph; the graph's nodes stand in ascending order of it.
    pub id: u64,
    /// The node's name: a position in the graph's table, see [`crate::Graph::name`].
    pub name: u32,
    /// What it does.
    pub work: Work,
    /// How long it takes in picoseconds as the source states it; 0 where it states none.
    pub ps: u64,
    /// Runs on the host.
    pub cpu: bool,
    /// The stream it was recorded on.
    pub stream: Option<u32>,
    /// Among ready nodes of a lane, higher first.
    pub priority: i32,
}
