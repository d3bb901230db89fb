//! The collectives that are synthesized.

/// What is to be done. Buffers follow the in-place layouts of NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every NPU ends with every NPU's share.
    AllGather,
    /// Every NPU ends with the sum of its share.
    ReduceScatter,
    /// Every NPU ends with the sum of everything.
    AllReduce,
    /// Every NPU ends with the root's buffer.
    Broadcast,
    /// The root ends with the sum of everything.
    Reduce,
    /// The root ends with every NPU's share.
    Gather,
    /// Every NPU ends with its share of the root's buffer.
    Scatter,
    /// Every NPU ends with what every NPU had for it.
    AllToAll,
}

impl Collective {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 8] = [
        ("all_gather", Self::AllGather),
        ("reduce_scatter", Self::ReduceScatter),
        ("all_reduce", Self::AllReduce),
        ("broadcast", Self::Broadcast),
        ("reduce", Self::Reduce),
        ("gather", Self::Gather),
        ("scatter", Self::Scatter),
        ("all_to_all", Self::AllToAll),
    ];

    /// By name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.0 == name).map(|c| c.1)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|c| c.1 == self).map_or("", |c| c.0)
    }

    /// Elements are added up.
    pub fn reduces(self) -> bool {
        matches!(self, Self::ReduceScatter | Self::AllReduce | Self::Reduce)
    }

    /// Shares a buffer consists of: one per NPU, or a single one.
    pub fn shares(self, nodes: u32) -> u32 {
        match self {
            Self::AllReduce | Self::Broadcast | Self::Reduce => 1,
            _ => nodes,
        }
    }
}
