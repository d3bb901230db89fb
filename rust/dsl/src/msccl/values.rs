//! The chunks of a program: which part of whose input each is, or the sum of which.

/// A chunk of the input of a rank, as a collective names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Given {
    /// The rank whose input it is.
    pub origin_rank: i64,
    /// Where it is in that input.
    pub origin_index: i64,
    /// The rank at which it has to end; -1 for all.
    pub dst_rank: i64,
    /// Where it has to end.
    pub dst_index: i64,
}

/// A chunk, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Value(u32);

impl Value {
    /// Never written.
    pub const NONE: Value = Value(0);

    /// True for a slot that was never written.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

#[derive(Debug, Clone, Copy)]
enum Node {
    Given(Given),
    /// The chunks of the one, then those of the other.
    Sum {
        creator: u32,
        first: Value,
        then: Value,
        parts: u64,
    },
}

/// Every chunk that occurred. Sums share their parts: a sum costs the same, however many parts it has.
#[derive(Debug, Clone, Default)]
pub struct Values {
    nodes: Vec<Node>,
}

impl Values {
    /// A chunk of an input.
    pub fn given(&mut self, given: Given) -> Value {
        self.push(Node::Given(given))
    }

    /// `value` reduced into `into` at `rank`. Of a sum and a plain chunk the sum comes first, and keeps its creator.
    pub fn sum(&mut self, into: Value, value: Value, rank: u32) -> Value {
        if into.is_none() || value.is_none() {
            return Value::NONE;
        }
        let (first, then) = match (self.node(into), self.node(value)) {
            (Node::Given(_), Node::Sum { .. }) => (value, into),
            _ => (into, value),
        };
        let creator = match self.node(first) {
            Node::Sum { creator, .. } => creator,
            Node::Given(_) => rank,
        };
        let parts = self.parts(first).saturating_add(self.parts(then));
        self.push(Node::Sum { creator, first, then, parts })
    }

    /// How many chunks of inputs it is made of, repetitions counted.
    pub fn parts(&self, value: Value) -> u64 {
        match value {
            Value::NONE => 0,
            value => match self.node(value) {
                Node::Given(_) => 1,
                Node::Sum { parts, .. } => parts,
            },
        }
    }

    /// The rank that made the sum; `None` for a plain chunk.
    pub fn creator(&self, value: Value) -> Option<u32> {
        match self.node(value) {
            Node::Given(_) => None,
            Node::Sum { creator, .. } => Some(creator),
        }
    }

    /// The chunks it is made of, in order.
    pub fn chunks(&self, value: Value) -> Vec<Given> {
        let mut found = Vec::new();
        let mut todo = vec![value];
        while let Some(value) = todo.pop() {
            match self.node(value) {
                Node::Given(given) => found.push(given),
                Node::Sum { first, then, .. } => todo.extend([then, first]),
            }
        }
        found
    }

    /// True for the sum of chunk `index` of each of `ranks` ranks, each once.
    pub fn is_whole_sum(&self, value: Value, index: i64, ranks: u32) -> bool {
        if self.parts(value) != u64::from(ranks) || (ranks == 1 && self.creator(value).is_none()) {
            return false;
        }
        let mut chunks = self.chunks(value);
        chunks.sort_unstable();
        chunks.iter().zip(0..).all(|(chunk, rank)| chunk.origin_rank == rank && chunk.origin_index == index)
    }

    /// True for chunk `index` of `rank`, alone.
    pub fn is_chunk(&self, value: Value, rank: u32, index: i64) -> bool {
        !value.is_none()
            && matches!(self.node(value), Node::Given(given)
                if given.origin_rank == i64::from(rank) && given.origin_index == index)
    }

    fn node(&self, value: Value) -> Node {
        self.nodes[value.0 as usize - 1]
    }

    fn push(&mut self, node: Node) -> Value {
        self.nodes.push(node);
        Value(self.nodes.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &mut Values, rank: i64) -> Value {
        values.given(Given { origin_rank: rank, origin_index: 3, dst_rank: -1, dst_index: 3 })
    }

    #[test]
    fn a_sum_keeps_its_creator_and_comes_first() {
        let mut values = Values::default();
        let [a, b, c] = [0, 1, 2].map(|rank| of(&mut values, rank));
        let ab = values.sum(a, b, 7);
        let cab = values.sum(c, ab, 8);
        assert_eq!(values.creator(cab), Some(7));
        assert_eq!(values.chunks(cab).iter().map(|c| c.origin_rank).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(values.is_whole_sum(cab, 3, 3) && !values.is_whole_sum(cab, 2, 3) && !values.is_whole_sum(ab, 3, 3));
    }

    #[test]
    fn what_is_doubled_without_end_is_counted_without_being_followed() {
        let mut values = Values::default();
        let mut sum = of(&mut values, 0);
        for _ in 0..200 {
            sum = values.sum(sum, sum, 0);
        }
        assert_eq!(values.parts(sum), u64::MAX);
        assert!(!values.is_whole_sum(sum, 3, 4));
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let mut values = Values::default();
        let mut sum = of(&mut values, 0);
        for rank in 1..100_000 {
            let next = of(&mut values, rank);
            sum = values.sum(next, sum, 0);
        }
        assert!(values.is_whole_sum(sum, 3, 100_000));
    }
}
