//! Ordered rules, of which the first that fits a call is taken.

use crate::Call;

/// Whole numbers from `least` to `most`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The smallest.
    pub least: u64,
    /// The largest.
    pub most: u64,
}

impl Span {
    /// All numbers.
    pub const ANY: Self = Self { least: 0, most: u64::MAX };

    /// Whether a number is in it.
    pub fn has(self, number: u64) -> bool {
        self.least <= number && number <= self.most
    }
}

/// The calls that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name of the collective.
    pub collective: String,
    /// Bytes of one rank's array.
    pub bytes: Span,
    /// Whether `bytes` are compared with the array's divided by the ranks, rounded down.
    pub per_rank: bool,
    /// Ranks of the group.
    pub ranks: Span,
    /// Nodes of the group.
    pub nodes: Span,
    /// Ranks of the group divided by its nodes, rounded down.
    pub ranks_per_node: Span,
}

impl Rule {
    /// The rule for all calls of a collective.
    pub fn any(collective: &str) -> Self {
        let any = Span::ANY;
        Self {
            collective: collective.to_owned(),
            bytes: any,
            per_rank: false,
            ranks: any,
            nodes: any,
            ranks_per_node: any,
        }
    }

    /// Whether it is for a call of its collective.
    fn fits(&self, call: &Call) -> bool {
        let bytes = if self.per_rank { call.bytes / u64::from(call.ranks.max(1)) } else { call.bytes };
        self.bytes.has(bytes)
            && self.ranks.has(call.ranks.into())
            && self.nodes.has(call.nodes.into())
            && self.ranks_per_node.has((call.ranks / call.nodes.max(1)).into())
    }
}

/// Rules in their order.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// By collective, the positions of its rules.
    of: Vec<(String, Vec<u32>)>,
}

impl Rules {
    /// These rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut of: Vec<(String, Vec<u32>)> = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            let position = of.iter().position(|(name, _)| *name == rule.collective).unwrap_or_else(|| {
                of.push((rule.collective.clone(), Vec::new()));
                of.len() - 1
            });
            of[position].1.push(at as u32);
        }
        Self { rules, of }
    }

    /// Position of the first rule from `after` on that is for a call.
    pub fn first(&self, collective: &str, call: &Call, after: u32) -> Option<u32> {
        let (_, own) = self.of.iter().find(|(name, _)| name == collective)?;
        own.iter().copied().find(|&at| at >= after && self.rules[at as usize].fits(call))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}
