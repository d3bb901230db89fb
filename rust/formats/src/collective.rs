//! Collectives: what a plan promises, by the names its formats use.

/// What a plan says it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank ends with the reduction of all inputs.
    AllReduce,
    /// Every rank ends with all inputs, in rank order.
    AllGather,
    /// Rank r ends with block r of the reduction of all inputs.
    ReduceScatter,
    /// Rank r ends with block r of every rank's input, in rank order.
    AllToAll,
    /// Rank r + 1 ends with the input of rank r; the first rank's output is left alone.
    AllToNext,
    /// Every rank ends with the root's input.
    Broadcast {
        /// The rank that has the data.
        root: u32,
    },
    /// The root ends with the reduction of all inputs.
    Reduce {
        /// The rank that gets the result.
        root: u32,
    },
    /// The root ends with all inputs, in rank order.
    Gather {
        /// The rank that gets the result.
        root: u32,
    },
    /// Rank r ends with block r of the root's input.
    Scatter {
        /// The rank that has the data.
        root: u32,
    },
    /// A name without a known post-condition.
    Custom,
}

impl Collective {
    /// From a file's spelling: case, `_` and `-` do not matter; rooted collectives are rooted at rank 0.
    pub fn parse(name: &str) -> Self {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        match plain.as_str() {
            "allreduce" => Self::AllReduce,
            "allgather" => Self::AllGather,
            "reducescatter" => Self::ReduceScatter,
            "alltoall" => Self::AllToAll,
            "alltonext" => Self::AllToNext,
            "broadcast" => Self::Broadcast { root: 0 },
            "reduce" => Self::Reduce { root: 0 },
            "gather" => Self::Gather { root: 0 },
            "scatter" => Self::Scatter { root: 0 },
            _ => Self::Custom,
        }
    }

    /// The name that the rest of the project uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::AllToNext => "all_to_next",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::Custom => "custom",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        assert_eq!(Collective::parse("allreduce"), Collective::AllReduce);
        assert_eq!(Collective::parse("Reduce_Scatter"), Collective::ReduceScatter);
        assert_eq!(Collective::parse("test"), Collective::Custom);
    }
}
