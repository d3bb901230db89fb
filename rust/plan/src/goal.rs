//! The promise of a plan, by the names its formats use.

use crate::Collective;
use crate::collective::{Content, Extent, Ranks, Relation};
use std::fmt;

/// The computation that a plan states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Goal {
    /// A collective, and the root of one that has a root (else 0).
    Collective(Collective, u32),
    /// Rank r ends with the input of the rank `shift` before it, cyclically.
    SendRecv {
        /// Distance from a rank to the one it sends to.
        shift: u32,
    },
    /// Rank r + 1 ends with the input of rank r; the first rank's output is left alone.
    AllToNext,
    /// A name without a known post-condition.
    Custom,
}

impl From<Collective> for Goal {
    /// Rooted at rank 0.
    fn from(collective: Collective) -> Self {
        Self::new(collective, 0)
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Collective(collective, root) if collective.is_rooted() => {
                write!(f, "{collective:?} {{ root: {root} }}")
            }
            Self::Collective(collective, _) => write!(f, "{collective:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Goal {
    /// A collective with a root, which those without one do not have.
    pub fn new(collective: Collective, root: u32) -> Self {
        Self::Collective(collective, if collective.is_rooted() { root } else { 0 })
    }

    /// From a file's spelling: case, `_` and `-` do not matter; rooted collectives are rooted at rank 0, and
    /// a send/receive goes to the next rank.
    pub fn parse(name: &str) -> Self {
        let plain = |name: &str| -> String {
            name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
        };
        let wanted = plain(name);
        if let Some((_, collective)) = Collective::ALL.into_iter().find(|(name, _)| plain(name) == wanted) {
            return collective.into();
        }
        match wanted.as_str() {
            "alltonext" => Self::AllToNext,
            "sendrecv" => Self::SendRecv { shift: 1 },
            _ => Self::Custom,
        }
    }

    /// The name that the rest of the project uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Collective(collective, _) => collective.name(),
            Self::AllToNext => "all_to_next",
            Self::SendRecv { .. } => "send_recv",
            Self::Custom => "custom",
        }
    }

    /// The collective; `None` for other exchanges.
    pub fn collective(self) -> Option<Collective> {
        match self {
            Self::Collective(collective, _) => Some(collective),
            _ => None,
        }
    }

    /// The parameter that a file's spelling leaves open, by name: the root, or the distance of a send.
    pub fn parameter(self) -> Option<(&'static str, u32)> {
        match self {
            Self::SendRecv { shift } => Some(("shift", shift)),
            Self::Collective(collective, root) if collective.is_rooted() => Some(("root", root)),
            _ => None,
        }
    }

    /// With that parameter; itself where it has none.
    #[must_use]
    pub fn with_parameter(self, n: u32) -> Self {
        match self {
            Self::SendRecv { .. } => Self::SendRecv { shift: n },
            Self::Collective(collective, _) => Self::new(collective, n),
            other => other,
        }
    }

    /// Who holds what before and after; `None` where that is not known.
    pub fn relation(self) -> Option<Relation> {
        let (operand, result) = (Extent::Whole, Extent::Whole);
        match self {
            Self::Collective(collective, root) => Some(collective.relation(root)),
            Self::SendRecv { shift } => {
                let (holders, takers) = (Ranks::All, Ranks::All);
                Some(Relation { holders, operand, takers, result, content: Content::Before(shift) })
            }
            Self::AllToNext => {
                let (holders, takers) = (Ranks::All, Ranks::AllBut(0));
                Some(Relation { holders, operand, takers, result, content: Content::Before(1) })
            }
            Self::Custom => None,
        }
    }

    /// True when it cuts its larger buffer into one block per rank.
    pub fn in_blocks(self) -> bool {
        self.relation().is_some_and(|relation| relation.is_chunked())
    }

    /// True when a rank ends with a reduction.
    pub fn reduces_at(self, rank: u32) -> bool {
        self.relation().is_some_and(|relation| relation.reduces_at(rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        assert_eq!(Goal::parse("allreduce"), Collective::AllReduce.into());
        assert_eq!(Goal::parse("Reduce_Scatter"), Collective::ReduceScatter.into());
        assert_eq!(Goal::parse("test"), Goal::Custom);
    }

    #[test]
    fn a_goal_says_its_root_where_it_has_one() {
        assert_eq!(Goal::new(Collective::Reduce, 2).to_string(), "Reduce { root: 2 }");
        assert_eq!(Goal::new(Collective::AllReduce, 2), Collective::AllReduce.into());
        assert_eq!(Goal::SendRecv { shift: 3 }.to_string(), "SendRecv { shift: 3 }");
    }
}
