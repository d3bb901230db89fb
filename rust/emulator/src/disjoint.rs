//! Disjoint sets of numbers (B. Galler, M. Fischer, CACM 7(5), 1964).

/// Sets that can be joined; each is named by its least number.
#[derive(Debug)]
pub(crate) struct Disjoint {
    parent: Vec<u32>,
}

impl Disjoint {
    /// Each of the first `count` numbers alone.
    pub(crate) fn new(count: usize) -> Self {
        Self { parent: (0..count as u32).collect() }
    }

    /// The least number of the set that a number is in.
    pub(crate) fn of(&mut self, mut number: u32) -> u32 {
        while self.parent[number as usize] != number {
            let above = self.parent[self.parent[number as usize] as usize];
            self.parent[number as usize] = above;
            number = above;
        }
        number
    }

    /// Makes one set of those that two numbers are in.
    pub(crate) fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.of(a), self.of(b));
        self.parent[a.max(b) as usize] = a.min(b);
    }
}
