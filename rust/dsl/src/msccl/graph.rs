//! Edges by their ends.

/// The other ends of the edges of every node, in the order in which the edges were given.
#[derive(Debug, Clone)]
pub struct Adjacency {
    starts: Vec<u32>,
    others: Vec<u32>,
}

impl Adjacency {
    /// Of edges (node, other), for nodes below `nodes`.
    pub fn new(nodes: usize, edges: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0; nodes + 1];
        edges.clone().for_each(|(node, _)| starts[node as usize + 1] += 1);
        for i in 0..nodes {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut others = vec![0; starts[nodes] as usize];
        for (node, other) in edges {
            others[next[node as usize] as usize] = other;
            next[node as usize] += 1;
        }
        Self { starts, others }
    }

    /// The other ends of a node's edges.
    pub fn of(&self, node: u32) -> &[u32] {
        &self.others[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}
