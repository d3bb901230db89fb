//! The one table of what collectives mean: who holds what before, who takes what after, and what that is made of.
//!
//! Everything else follows from a row: the memory of a plan ([`crate::buffers`]), the elements that a check expects
//! ([`crate::Goal::expectation`]), the registers of a schedule, and what the Python side computes its references from.
//!
//! `whole` counts the elements (or chunks) of the larger of operand and result, `ranks` blocks of it belong to one rank
//! each. An operand or result that is a rank's own block stands at that block of the buffer in place, and at the start
//! of a memory of its own otherwise; positions here count from its start.

use std::ops::Range;

/// A collective of a group of ranks. In place, buffers follow the layouts of NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank ends with every rank's block.
    AllGather,
    /// Every rank ends with its block of the reduction.
    ReduceScatter,
    /// Every rank ends with the reduction of everything.
    AllReduce,
    /// Every rank ends with the root's buffer.
    Broadcast,
    /// The root ends with the reduction of everything.
    Reduce,
    /// The root ends with every rank's block.
    Gather,
    /// Every rank ends with its block of the root's buffer.
    Scatter,
    /// Every rank ends with what every rank had for it.
    AllToAll,
}

/// Whose buffers take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranks {
    /// Those of all ranks.
    All,
    /// That of one rank.
    Only(u32),
    /// Those of all ranks but one.
    AllBut(u32),
    /// None.
    None,
}

impl Ranks {
    /// True when the buffer of `rank` takes part.
    pub fn contains(self, rank: u32) -> bool {
        match self {
            Self::All => true,
            Self::Only(one) => rank == one,
            Self::AllBut(one) => rank != one,
            Self::None => false,
        }
    }

    /// Those of the first `ranks` ranks that take part.
    pub fn among(self, ranks: u32) -> impl Iterator<Item = u32> {
        (0..ranks).filter(move |&rank| self.contains(rank))
    }
}

/// How much of a buffer takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// The rank's own block.
    Own,
}

impl Extent {
    /// Its size, of `whole` in blocks of `part`.
    pub fn of<T>(self, whole: T, part: T) -> T {
        match self {
            Self::Whole => whole,
            Self::Own => part,
        }
    }

    /// The start of the extent in a buffer whose block `rank` starts at `own`.
    pub fn start<T: Default>(self, own: T) -> T {
        match self {
            Self::Whole => T::default(),
            Self::Own => own,
        }
    }
}

/// The content of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The reduction of all operands.
    Reduced,
    /// Block q is the operand of rank q.
    Gathered,
    /// Block q is the taker's block of the operand of rank q.
    Exchanged,
    /// The operand of one rank.
    Of(u32),
    /// The operand of the rank so many before the taker, cyclically.
    Before(u32),
}

/// The meaning of one collective, its root and partners being known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    /// Whose operands are read.
    pub holders: Ranks,
    /// How much of the buffer an operand is.
    pub operand: Extent,
    /// Whose results are defined.
    pub takers: Ranks,
    /// How much of the buffer a result is.
    pub result: Extent,
    /// The content of the results.
    pub content: Content,
}

/// Facts about a collective by name, whatever its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The name that the whole project uses.
    pub name: &'static str,
    /// A buffer has one block per rank.
    pub chunked: bool,
    /// Takes a reduction operator.
    pub reduces: bool,
    /// Takes a root.
    pub rooted: bool,
    /// Takes a source and a destination.
    pub paired: bool,
}

/// A contribution: element `index` of the input of `rank`.
pub type Contribution = (u32, u64);

/// Elements of a rank's operand or result, and what each of the first contributions is; the next element has the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The elements.
    pub elements: Range<u64>,
    /// The contributions to the first element: rank and index in that rank's operand.
    pub made_of: Vec<Contribution>,
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

    /// The meaning of the collective: the table. `root` matters to the collectives that have one.
    pub const fn relation(self, root: u32) -> Relation {
        use Content::{Exchanged, Gathered, Of, Reduced};
        use Extent::{Own, Whole};
        use Ranks::{All, Only};
        let (holders, operand, takers, result, content) = match self {
            Self::AllReduce => (All, Whole, All, Whole, Reduced),
            Self::Reduce => (All, Whole, Only(root), Whole, Reduced),
            Self::ReduceScatter => (All, Whole, All, Own, Reduced),
            Self::AllGather => (All, Own, All, Whole, Gathered),
            Self::Gather => (All, Own, Only(root), Whole, Gathered),
            Self::Broadcast => (Only(root), Whole, All, Whole, Of(root)),
            Self::Scatter => (Only(root), Whole, All, Own, Of(root)),
            Self::AllToAll => (All, Whole, All, Whole, Exchanged),
        };
        Relation { holders, operand, takers, result, content }
    }

    /// Elements are reduced.
    pub fn reduces(self) -> bool {
        self.relation(0).content == Content::Reduced
    }

    /// It has a root.
    pub fn is_rooted(self) -> bool {
        let Relation { holders, takers, .. } = self.relation(0);
        [holders, takers].contains(&Ranks::Only(0))
    }

    /// Shares a buffer consists of: one per rank, or a single one.
    pub fn shares(self, ranks: u32) -> u32 {
        if self.relation(0).is_chunked() { ranks } else { 1 }
    }
}

/// A message from one rank to another: the collective `send_recv`.
pub const fn message(from: u32, to: u32) -> Relation {
    let (holders, takers) = (Ranks::Only(from), Ranks::Only(to));
    Relation { holders, operand: Extent::Whole, takers, result: Extent::Whole, content: Content::Of(from) }
}

/// Nothing but waiting for all: the collective `barrier` leaves what everybody has alone.
pub const BARRIER: Relation = Relation {
    holders: Ranks::All,
    operand: Extent::Whole,
    takers: Ranks::None,
    result: Extent::Whole,
    content: Content::Reduced,
};

/// The meaning of a name among ranks that know `root`, or `src` and `dst` where it has them; `None` for other names.
pub fn relation(name: &str, root: u32, src: u32, dst: u32) -> Option<Relation> {
    match name {
        "send_recv" => Some(message(src, dst)),
        "barrier" => Some(BARRIER),
        _ => Collective::parse(name).map(|collective| collective.relation(root)),
    }
}

/// Facts about everything that [`relation`] knows, in the order in which people list them.
pub fn facts() -> Vec<Facts> {
    const NAMES: [&str; 10] = [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "reduce",
        "gather",
        "scatter",
        "all_to_all",
        "send_recv",
        "barrier",
    ];
    let fact = |name: &'static str| {
        let known = Collective::parse(name);
        let is = |test: fn(Collective) -> bool| known.is_some_and(test);
        Facts {
            name,
            chunked: is(|collective| collective.relation(0).is_chunked()),
            reduces: is(Collective::reduces),
            rooted: is(Collective::is_rooted),
            paired: name == "send_recv",
        }
    };
    NAMES.map(fact).to_vec()
}

impl Relation {
    /// True when the larger of operand and result has a block for every rank.
    pub fn is_chunked(&self) -> bool {
        [self.operand, self.result].contains(&Extent::Own) || self.content == Content::Exchanged
    }

    /// True when `rank` ends with a reduction.
    pub fn reduces_at(&self, rank: u32) -> bool {
        self.content == Content::Reduced && self.takers.contains(rank)
    }

    /// The ranks whose operands block `block` of the buffer is made of; for an exchange, a block per pair is counted by
    /// source times ranks plus destination.
    pub fn sources(&self, block: u32, ranks: u32) -> Vec<u32> {
        match self.content {
            Content::Gathered => vec![block],
            Content::Exchanged => vec![block / ranks],
            _ => self.holders.among(ranks).collect(),
        }
    }

    /// The ranks that end with block `block`, counted as in [`Relation::sources`].
    pub fn destinations(&self, block: u32, ranks: u32) -> Vec<u32> {
        match (self.content, self.result) {
            (Content::Exchanged, _) => vec![block % ranks],
            (_, Extent::Own) => vec![block],
            _ => self.takers.among(ranks).collect(),
        }
    }

    /// The operand of `rank`, if it is read.
    pub fn held(&self, rank: u32, ranks: u32, whole: u64) -> Option<Run> {
        let part = whole / u64::from(ranks.max(1));
        let elements = 0..self.operand.of(whole, part);
        let run = Run { elements, made_of: vec![(rank, 0)] };
        (self.holders.contains(rank) && !run.elements.is_empty()).then_some(run)
    }

    /// The runs of which the result of `rank` must be made, in order.
    pub fn expected(&self, rank: u32, ranks: u32, whole: u64) -> Vec<Run> {
        if !self.takers.contains(rank) {
            return Vec::new();
        }
        let part = whole / u64::from(ranks.max(1));
        let own = u64::from(rank) * part;
        let (elements, first) = (0..self.result.of(whole, part), self.result.start(own));
        let one = |made_of| vec![Run { elements: elements.clone(), made_of }];
        // A block of every rank, one after the other.
        let size = part.max(1);
        let blocks = |first: u64| {
            let block =
                |q: u64| Run { elements: q * size..whole.min((q + 1) * size), made_of: vec![(q as u32, first)] };
            (0..whole.div_ceil(size)).map(block).collect()
        };
        match self.content {
            Content::Reduced => one((0..ranks).map(|q| (q, first)).collect()),
            Content::Of(source) => one(vec![(source, first)]),
            Content::Before(shift) => one(vec![((rank + ranks - shift % ranks) % ranks, 0)]),
            Content::Gathered => blocks(0),
            Content::Exchanged => blocks(own),
        }
    }

    /// [`Relation::held`] and [`Relation::expected`] of `rank` as positions and indices in buffers in place, one array
    /// per rank of `count` elements per block.
    pub fn in_place(&self, rank: u32, ranks: u32, count: u64) -> (Option<Run>, Vec<Run>) {
        let whole = if self.is_chunked() { u64::from(ranks).saturating_mul(count) } else { count };
        let block = |rank: u32| u64::from(rank).saturating_mul(count);
        let moved = |run: Run, start: u64| Run {
            elements: run.elements.start + start..run.elements.end + start,
            made_of: run.made_of.into_iter().map(|(q, index)| (q, index + self.operand.start(block(q)))).collect(),
        };
        let held = self.held(rank, ranks, whole).map(|run| moved(run, self.operand.start(block(rank))));
        let expected = self.expected(rank, ranks, whole).into_iter().filter(|run| !run.elements.is_empty());
        (held, expected.map(|run| moved(run, self.result.start(block(rank)))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(name: &str, rank: u32) -> (Option<Run>, Vec<Run>) {
        relation(name, 1, 2, 0).expect("a collective").in_place(rank, 3, 4)
    }

    fn run(elements: Range<u64>, made_of: &[Contribution]) -> Run {
        Run { elements, made_of: made_of.to_vec() }
    }

    #[test]
    fn buffers_in_place_hold_and_become_what_the_table_says() {
        let gathered = vec![run(0..4, &[(0, 0)]), run(4..8, &[(1, 4)]), run(8..12, &[(2, 8)])];
        assert_eq!(runs("all_gather", 2), (Some(run(8..12, &[(2, 8)])), gathered.clone()));
        assert_eq!(runs("gather", 1), (Some(run(4..8, &[(1, 4)])), gathered));
        assert_eq!(runs("gather", 0), (Some(run(0..4, &[(0, 0)])), vec![]));
        let summed = vec![run(8..12, &[(0, 8), (1, 8), (2, 8)])];
        assert_eq!(runs("reduce_scatter", 2), (Some(run(0..12, &[(2, 0)])), summed));
        assert_eq!(runs("reduce", 2), (Some(run(0..4, &[(2, 0)])), vec![]));
        assert_eq!(runs("broadcast", 0), (None, vec![run(0..4, &[(1, 0)])]));
        assert_eq!(runs("scatter", 2), (None, vec![run(8..12, &[(1, 8)])]));
        let exchanged = vec![run(0..4, &[(0, 4)]), run(4..8, &[(1, 4)]), run(8..12, &[(2, 4)])];
        assert_eq!(runs("all_to_all", 1), (Some(run(0..12, &[(1, 0)])), exchanged));
        assert_eq!(runs("send_recv", 0), (None, vec![run(0..4, &[(2, 0)])]));
        assert_eq!(runs("send_recv", 2), (Some(run(0..4, &[(2, 0)])), vec![]));
        assert_eq!(runs("barrier", 1), (Some(run(0..4, &[(1, 0)])), vec![]));
        assert_eq!(relation("all_reduced", 0, 0, 1), None);
    }

    #[test]
    fn facts_follow_from_the_table() {
        let names = |test: fn(&Facts) -> bool| facts().into_iter().filter(test).map(|f| f.name).collect::<Vec<_>>();
        assert_eq!(names(|f| f.chunked), ["all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"]);
        assert_eq!(names(|f| f.reduces), ["all_reduce", "reduce_scatter", "reduce"]);
        assert_eq!(names(|f| f.rooted), ["broadcast", "reduce", "gather", "scatter"]);
        assert_eq!(names(|f| f.paired), ["send_recv"]);
    }
}
