//! The contents of runs of elements: a graph of nodes, each made of earlier ones.

use crate::print::Print;
use crate::support::Step;
use ahbm_engine::interrupt::spend;
use ahbm_plan::Contribution;
use ahbm_program::BinaryFn;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Index of a node of the graph.
pub(crate) type Node = u32;

/// The empty multiset.
pub(crate) const EMPTY: Node = 0;
#[derive(Debug, Clone, Copy)]
enum Made {
    Nothing,
    /// Of a rank in a call.
    Input(u32, u32),
    Undefined,
    /// By an operation whose meaning is not known.
    Function,
    /// Of two nodes, the second so many indices further on.
    Union(Node, Node, i64),
}

/// A node and what is in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) print: Print,
    made: Made,
    /// Every element is the same.
    pub(crate) flat: bool,
    /// Memory that nobody wrote went into it.
    pub(crate) undefined: bool,
    /// The first operation on the way that is no union.
    pub(crate) function: Option<Step>,
    pub(crate) by: By,
    /// The first cast on the way to a type that does not hold every element of the request.
    pub(crate) narrowed: Option<Step>,
    /// What it was multiplied with on its way.
    pub(crate) scale: Scale,
    /// The first and the last call whose inputs went into it; the first is after the last where none did.
    calls: (u32, u32),
}

/// The functions that united contributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum By {
    #[default]
    Nothing,
    One(BinaryFn),
    Several,
}

impl By {
    pub(crate) fn then(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, by) | (by, Self::Nothing) => by,
            (one, other) if one == other => one,
            _ => Self::Several,
        }
    }
}

/// The factor of contributions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scale {
    /// NaN where it is not one number: contributions have several, or a function is not linear in them.
    factor: Option<f64>,
    /// The first operation that scaled.
    pub(crate) step: Option<Step>,
}

impl Scale {
    pub(crate) fn factor(self) -> f64 {
        self.factor.unwrap_or(1.0)
    }

    fn times(self, factor: f64, step: &Step) -> Self {
        Self { factor: Some(self.factor() * factor), step: self.step.or(Some(*step)) }
    }

    /// That of the values that `f` unites.
    fn united(self, f: BinaryFn, other: Self) -> Self {
        let (one, two) = (self.factor(), other.factor());
        let factor = match f {
            BinaryFn::Mul => one * two,
            BinaryFn::Max | BinaryFn::Min if one < 0.0 => f64::NAN,
            _ if f.is_bitwise() && one != 1.0 => f64::NAN,
            _ if one == two => one,
            _ => f64::NAN,
        };
        Self { factor: Some(factor), step: self.step.or(other.step) }
    }
}

/// A run of elements of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) elements: u64,
    pub(crate) node: Node,
    pub(crate) index: i64,
}

pub(crate) type Value = Rc<[Piece]>;

/// The contributions to an element, each with the call that it was the input of, and how often each went in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    pub(crate) counts: FxHashMap<(u32, Contribution), u64>,
    /// Memory that nobody wrote went into it.
    pub(crate) undefined: bool,
}

/// Every node there is.
#[derive(Default)]
pub(crate) struct Nodes {
    nodes: Vec<Known>,
    /// Functions by print: the same function of the same values is the same.
    functions: FxHashMap<Print, Node>,
    /// By node, the same after it was cast to a narrower type.
    narrower: FxHashMap<Node, Node>,
    /// By node and the bits of a factor, the same times the factor.
    scaled: FxHashMap<(Node, u64), Node>,
}

/// How a node was made, as far as sums go.
pub(crate) enum Addition {
    /// The element itself of a party.
    Contribution(u32),
    /// The sum of two nodes at the same index.
    Of(u32, u32),
    /// In another way.
    None,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        let nothing = Known {
            print: Print::default(),
            made: Made::Nothing,
            flat: true,
            undefined: false,
            function: None,
            by: By::Nothing,
            narrowed: None,
            scale: Scale::default(),
            calls: (u32::MAX, 0),
        };
        Self { nodes: vec![nothing], ..Self::default() }
    }

    pub(crate) fn get(&self, node: Node) -> &Known {
        &self.nodes[node as usize]
    }

    /// The input of a rank in a call.
    pub(crate) fn input(&mut self, print: Print, rank: u32, call: u32) -> Node {
        self.add(Known { print, made: Made::Input(rank, call), flat: false, calls: (call, call), ..*self.get(EMPTY) })
    }

    /// Memory that nobody wrote.
    pub(crate) fn unwritten(&mut self, print: Print) -> Node {
        self.add(Known { print, made: Made::Undefined, undefined: true, flat: false, ..*self.get(EMPTY) })
    }

    /// The nodes in the order in which they were made, as sums.
    pub(crate) fn additions(&self) -> impl Iterator<Item = Addition> + '_ {
        self.nodes.iter().map(|known| match known.made {
            Made::Input(rank, _) => Addition::Contribution(rank),
            Made::Union(a, b, 0) => Addition::Of(a, b),
            Made::Nothing | Made::Undefined | Made::Function | Made::Union(..) => Addition::None,
        })
    }

    /// Whether inputs of another call than `call` went into a node.
    pub(crate) fn mixes(&self, node: Node, call: u32) -> bool {
        let (first, last) = self.get(node).calls;
        first <= last && (first, last) != (call, call)
    }

    /// The contributions that make up a node at an index.
    pub(crate) fn contents(&self, node: Node, index: i64) -> Contents {
        let mut contents = Contents::default();
        // Nodes are made of earlier ones, so every node is complete when its turn comes.
        let mut due = BTreeMap::from([((node, index), 1u64)]);
        while let Some(((node, index), times)) = due.pop_last() {
            spend(64);
            match self.nodes[node as usize].made {
                Made::Nothing | Made::Function => {}
                Made::Undefined => contents.undefined = true,
                Made::Input(rank, call) => {
                    let count = contents.counts.entry((call, (rank, index as u64))).or_default();
                    *count = count.saturating_add(times);
                }
                Made::Union(a, b, apart) => {
                    for part in [(a, index), (b, index + apart)] {
                        let count = due.entry(part).or_default();
                        *count = count.saturating_add(times);
                    }
                }
            }
        }
        contents
    }

    fn add(&mut self, known: Known) -> Node {
        self.nodes.push(known);
        self.nodes.len() as Node - 1
    }

    /// The node after a cast to a narrower type.
    pub(crate) fn narrow(&mut self, step: &Step, node: Node) -> Node {
        let known = self.nodes[node as usize];
        if node == EMPTY || known.narrowed.is_some() {
            return node;
        }
        if let Some(&narrower) = self.narrower.get(&node) {
            return narrower;
        }
        let narrower = self.add(Known { narrowed: Some(*step), ..known });
        self.narrower.insert(node, narrower);
        narrower
    }

    /// The node times a factor.
    pub(crate) fn scale(&mut self, step: &Step, node: Node, factor: f64) -> Node {
        if node == EMPTY || factor == 1.0 {
            return node;
        }
        if let Some(&scaled) = self.scaled.get(&(node, factor.to_bits())) {
            return scaled;
        }
        let known = self.nodes[node as usize];
        let scaled = self.add(Known { scale: known.scale.times(factor, step), ..known });
        self.scaled.insert((node, factor.to_bits()), scaled);
        scaled
    }

    pub(crate) fn print(&self, node: Node, index: i64) -> Print {
        let known = &self.nodes[node as usize];
        if known.flat { known.print } else { known.print.shifted(index) }
    }

    pub(crate) fn further(&self, node: Node, index: i64, by: u64) -> i64 {
        if self.nodes[node as usize].flat { index } else { index + by as i64 }
    }

    pub(crate) fn unite(&mut self, f: BinaryFn, (a, at): (Node, i64), (b, bt): (Node, i64)) -> (Node, i64) {
        match (a, b) {
            (EMPTY, _) => return (b, bt),
            (_, EMPTY) => return (a, at),
            _ => {}
        }
        let (one, other) = (self.nodes[a as usize], self.nodes[b as usize]);
        // Something flat has no index of its own and takes the other's.
        let (at, apart) = match (one.flat, other.flat) {
            (true, false) => (bt, 0),
            (false, true) => (at, 0),
            _ => (at, bt - at),
        };
        let node = self.add(Known {
            print: one.print.plus(other.print.shifted(apart)),
            made: Made::Union(a, b, apart),
            flat: one.flat && other.flat,
            undefined: one.undefined || other.undefined,
            function: one.function.or(other.function),
            by: one.by.then(other.by).then(By::One(f)),
            narrowed: one.narrowed.or(other.narrowed),
            scale: one.scale.united(f, other.scale),
            calls: (one.calls.0.min(other.calls.0), one.calls.1.max(other.calls.1)),
        });
        (node, at)
    }

    pub(crate) fn function(
        &mut self,
        step: &Step,
        identity: impl IntoIterator<Item = u64>,
        made_of: impl IntoIterator<Item = Node>,
        flat: bool,
    ) -> Node {
        let print = Print::list(identity);
        if let Some(&node) = self.functions.get(&print) {
            return node;
        }
        let undefined = made_of.into_iter().any(|node| self.nodes[node as usize].undefined);
        let function = Some(*step);
        let node = self.add(Known { print, made: Made::Function, flat, undefined, function, ..*self.get(EMPTY) });
        self.functions.insert(print, node);
        node
    }

    /// Neighbours that continue each other as one piece.
    pub(crate) fn merged(&self, pieces: impl Iterator<Item = Piece>) -> Value {
        let mut list: Vec<Piece> = Vec::new();
        for piece in pieces {
            match list.last_mut() {
                Some(last)
                    if last.node == piece.node
                        && (self.get(piece.node).flat || last.index + last.elements as i64 == piece.index) =>
                {
                    last.elements += piece.elements;
                }
                _ => list.push(piece),
            }
        }
        list.into()
    }
}

pub(crate) fn length(value: &Value) -> u64 {
    value.iter().map(|piece| piece.elements).sum()
}
