//! Maximum flow (Dinic), integer capacities.

use ahbm_engine::interrupt::spend;

/// A flow network. Arcs come in pairs: arc `2k` and its residual `2k + 1`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    /// Arcs that were looked at.
    pub(crate) work: u64,
    /// When so many were, a run ends before its time.
    pub(crate) limit: u64,
    head: Vec<u32>,
    next: Vec<u32>,
    to: Vec<u32>,
    residual: Vec<i64>,
    level: Vec<u32>,
    current: Vec<u32>,
    queue: Vec<u32>,
    path: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Flow {
    pub(crate) fn new(nodes: usize) -> Self {
        let none = vec![NONE; nodes];
        Self { limit: u64::MAX, head: none.clone(), level: none.clone(), current: none, ..Self::default() }
    }

    /// Adds an arc; returns its index.
    pub(crate) fn arc(&mut self, from: u32, to: u32, capacity: i64) -> u32 {
        let index = self.to.len() as u32;
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.to.push(to);
            self.residual.push(capacity);
            self.next.push(self.head[from as usize]);
            self.head[from as usize] = self.to.len() as u32 - 1;
        }
        index
    }

    /// Gives an arc a capacity and no flow.
    pub(crate) fn set(&mut self, arc: u32, capacity: i64) {
        self.residual[arc as usize] = capacity;
        self.residual[arc as usize + 1] = 0;
    }

    /// Gives an arc and its residual these capacities.
    pub(crate) fn assign(&mut self, arc: u32, (ahead, back): (i64, i64)) {
        self.residual[arc as usize] = ahead;
        self.residual[arc as usize + 1] = back;
    }

    /// Gives an arc so much more capacity; its flow stays.
    pub(crate) fn widen(&mut self, arc: u32, by: i64) {
        self.residual[arc as usize] += by;
    }

    /// Capacity of an arc that no flow uses.
    pub(crate) fn left(&self, arc: u32) -> i64 {
        self.residual[arc as usize]
    }

    /// Pushes flow from `source` to `sink` until there is no way left or `enough` has come through.
    pub(crate) fn run(&mut self, source: u32, sink: u32, enough: i64) -> i64 {
        let mut total = 0;
        while total < enough && self.work < self.limit && self.layers(source, sink) {
            spend(self.to.len() as u64);
            self.work += self.to.len() as u64;
            self.current.copy_from_slice(&self.head);
            while total < enough && self.work < self.limit {
                spend(self.path.len() as u64 + 16);
                self.work += self.path.len() as u64 + 16;
                let pushed = self.augment(source, sink, enough - total);
                if pushed == 0 {
                    break;
                }
                total += pushed;
            }
        }
        total
    }

    /// Breadth-first levels from the sink, so that the source side of a cut is what they do not reach.
    fn layers(&mut self, source: u32, sink: u32) -> bool {
        self.level.fill(NONE);
        self.queue.clear();
        self.queue.push(sink);
        self.level[sink as usize] = 0;
        let mut at = 0;
        while let Some(&node) = self.queue.get(at) {
            at += 1;
            let mut arc = self.head[node as usize];
            while arc != NONE {
                let from = self.to[arc as usize];
                if self.residual[arc as usize ^ 1] > 0 && self.level[from as usize] == NONE {
                    self.level[from as usize] = self.level[node as usize] + 1;
                    if from == source {
                        return true;
                    }
                    self.queue.push(from);
                }
                arc = self.next[arc as usize];
            }
        }
        false
    }

    /// One way along falling levels.
    fn augment(&mut self, source: u32, sink: u32, limit: i64) -> i64 {
        self.path.clear();
        let mut node = source;
        loop {
            if node == sink {
                let pushed = self.path.iter().map(|&a| self.residual[a as usize]).fold(limit, i64::min);
                for &arc in &self.path {
                    self.residual[arc as usize] -= pushed;
                    self.residual[arc as usize ^ 1] += pushed;
                }
                return pushed;
            }
            let arc = self.current[node as usize];
            if arc == NONE {
                self.level[node as usize] = NONE;
                let Some(back) = self.path.pop() else { return 0 };
                node = self.to[back as usize ^ 1];
                self.current[node as usize] = self.next[back as usize];
                continue;
            }
            let to = self.to[arc as usize];
            let falls = self.level[to as usize] != NONE && self.level[to as usize] + 1 == self.level[node as usize];
            if self.residual[arc as usize] > 0 && falls {
                self.path.push(arc);
                node = to;
            } else {
                self.current[node as usize] = self.next[arc as usize];
            }
        }
    }

    /// After a run that found no way: true for nodes on the source side of the minimum cut nearest to the sink.
    pub(crate) fn on_source_side(&self, node: u32) -> bool {
        self.level[node as usize] == NONE
    }
}
