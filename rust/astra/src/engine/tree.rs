//! The double binary tree: an all-reduce of the whole chunk, up to the root and down again, without pipelining.

/// Partners of a rank in a tree, by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Branch {
    parent: Option<u32>,
    children: [Option<u32>; 2],
}

impl Branch {
    /// The place of a rank in a tree of a power of two: an in-order tree of all ranks but one, below that one as the
    /// root, which comes last, or first where `root_first`.
    pub(super) fn of(place: u32, size: u32, root_first: bool) -> Self {
        let (inner, first) = (size - 1, u32::from(root_first));
        let root = if root_first { 0 } else { inner };
        let (mut low, mut high) = (first, first + inner);
        let top = low + inner / 2;
        if place == root {
            return Self { parent: None, children: [Some(top), None] };
        }
        let mut parent = root;
        loop {
            let middle = low + (high - low) / 2;
            if place == middle {
                let side = |low: u32, high: u32| (low < high).then(|| low + (high - low) / 2);
                return Self { parent: Some(parent), children: [side(low, middle), side(middle + 1, high)] };
            }
            parent = middle;
            if place < middle { high = middle } else { low = middle + 1 }
        }
    }
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Start,
    Received,
    Passed,
}

/// What is to be done, at most one pass and two messages each way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Orders {
    /// A pass over the bus; true reduces.
    pub(super) pass: Option<bool>,
    pub(super) send: [Option<u32>; 2],
    pub(super) receive: [Option<u32>; 2],
    pub(super) end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    TwoChildren,
    OneChild,
    ToParent,
    FromParent,
    ToChildren,
    End,
}

/// The state of the algorithm at a rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    branch: Branch,
    state: State,
    /// The pass of the first child's data is over.
    reduced: bool,
}

impl Tree {
    pub(super) fn new(branch: Branch) -> Self {
        Self { branch, state: State::Begin, reduced: false }
    }

    /// Goes on.
    pub(super) fn run(&mut self, event: Event) -> Orders {
        let mut orders = Orders::default();
        let Branch { parent, children } = self.branch;
        let leaf = children == [None, None];
        let inner = parent.is_some() && !leaf;
        match self.state {
            State::Begin if leaf => {
                orders.pass = Some(false);
                self.state = State::ToParent;
            }
            State::Begin => {
                orders.receive = children;
                self.state = if inner { State::TwoChildren } else { State::OneChild };
            }
            State::TwoChildren if event == Event::Received => {
                orders.pass = Some(true);
                self.state = State::OneChild;
            }
            State::OneChild if event == Event::Received => {
                orders.pass = Some(true);
                self.state = if inner { State::ToParent } else { State::ToChildren };
            }
            _ if inner && !self.reduced && event == Event::Passed => self.reduced = true,
            State::ToParent => {
                orders.send[0] = parent;
                orders.receive[0] = parent;
                self.state = State::FromParent;
            }
            State::FromParent if event == Event::Received => {
                orders.pass = Some(inner);
                self.state = if leaf { State::End } else { State::ToChildren };
            }
            State::ToChildren => {
                orders.send = children;
                orders.end = true;
            }
            State::End => orders.end = true,
            _ => {}
        }
        orders
    }
}
