//! Who waits for whom: dependencies between positions, and an order that respects them.

use ahbm_findings::Diagnostic;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Dependencies of the nodes of a graph, node by node, each node's ascending and distinct.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Edges {
    list: Vec<u32>,
    /// Start of each node's entries, and the end.
    starts: Vec<u32>,
}

/// How many nodes a message lists before it says `…`.
const LISTED: usize = 8;

impl Default for Edges {
    fn default() -> Self {
        Self { list: Vec::new(), starts: vec![0] }
    }
}

impl Edges {
    /// Adds the next node, which waits for the nodes at `deps`.
    pub fn push(&mut self, deps: impl IntoIterator<Item = u32>) {
        let start = self.list.len();
        self.list.extend(deps);
        self.list[start..].sort_unstable();
        let mut kept = start;
        for at in start..self.list.len() {
            if at == start || self.list[at] != self.list[kept - 1] {
                self.list[kept] = self.list[at];
                kept += 1;
            }
        }
        self.list.truncate(kept);
        self.starts.push(kept as u32);
    }

    /// Positions of the nodes that the one at a position waits for, ascending and distinct.
    pub fn of(&self, at: u32) -> &[u32] {
        &self.list[self.starts[at as usize] as usize..self.starts[at as usize + 1] as usize]
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// The same in the other direction: who waits for a node.
    #[must_use]
    pub fn turned(&self) -> Self {
        let mut starts = vec![0u32; self.starts.len()];
        self.list.iter().for_each(|&at| starts[at as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut list = vec![0u32; self.list.len()];
        for at in 0..self.nodes() {
            for &dep in self.of(at) {
                list[next[dep as usize] as usize] = at;
                next[dep as usize] += 1;
            }
        }
        Self { list, starts }
    }

    /// Dependencies first, smallest key first among the ready ones. `users` are these edges turned.
    ///
    /// # Errors
    /// A circle, each node waiting for the next.
    pub fn sorted<K: Ord>(&self, users: &Self, key: impl Fn(u32) -> K) -> Result<Vec<u32>, Vec<u32>> {
        let mut open: Vec<u32> = (0..self.nodes()).map(|at| self.of(at).len() as u32).collect();
        let ready = |at: u32| Reverse((key(at), at));
        let mut heap: BinaryHeap<_> = (0..self.nodes()).filter(|&at| open[at as usize] == 0).map(ready).collect();
        let mut order = Vec::with_capacity(open.len());
        while let Some(Reverse((_, at))) = heap.pop() {
            order.push(at);
            for &user in users.of(at) {
                open[user as usize] -= 1;
                if open[user as usize] == 0 {
                    heap.push(ready(user));
                }
            }
        }
        if order.len() == open.len() { Ok(order) } else { Err(self.circle(&open)) }
    }

    /// Every node that is still open waits for another open one, so following them closes a circle.
    fn circle(&self, open: &[u32]) -> Vec<u32> {
        let is_open = |at: &u32| open[*at as usize] > 0;
        let mut seen = vec![u32::MAX; open.len()];
        let mut path = Vec::new();
        let mut at = (0..self.nodes()).find(is_open).unwrap_or(0);
        while seen[at as usize] == u32::MAX {
            seen[at as usize] = path.len() as u32;
            path.push(at);
            match self.of(at).iter().copied().find(is_open) {
                Some(next) => at = next,
                None => break,
            }
        }
        path.split_off(seen[at as usize] as usize)
    }
}

/// `AHBM-F134`: dependencies of a rank's nodes on ids that no node has, as (node, dependency).
pub fn dangling(rank: u32, file: &str, missing: &[(u64, u64)]) -> Option<Diagnostic> {
    let (node, _) = missing.first()?;
    let listed: Vec<String> = missing.iter().take(LISTED).map(|(n, d)| format!("{n} on {d}")).collect();
    let more = if missing.len() > LISTED { ", …" } else { "" };
    let what = format!("{} dependencies on nodes that do not exist: {}{more}", missing.len(), listed.join(", "));
    let finding =
        Diagnostic::new("AHBM-F134", what).site(format!("rank {rank}: node {node}"), format!("{file} node {node}"));
    Some(finding.hint("the trace was cut or linked badly; read leniently to leave such dependencies out"))
}

/// `AHBM-F135`: nodes that wait for each other, each with its id and its name, of a rank's file.
pub fn circular(rank: u32, file: &str, circle: &[(u64, String)]) -> Diagnostic {
    let ids: Vec<String> = circle.iter().take(LISTED).map(|(id, _)| id.to_string()).collect();
    let more = if circle.len() > LISTED { " -> …" } else { "" };
    let what = format!("{} nodes wait for each other: {}{more} -> {}", circle.len(), ids.join(" -> "), ids[0]);
    let sides = circle.iter().take(LISTED);
    let finding = sides.fold(Diagnostic::new("AHBM-F135", what), |finding, (id, name)| {
        finding.site(format!("rank {rank}: {name}"), format!("{file} node {id}"))
    });
    finding.hint("dependencies must form no circle; an arrow reads `waits for`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_order_respects_every_dependency_and_else_there_is_a_circle(
            lists in prop::collection::vec(prop::collection::vec(0..20u32, 0..3), 1..20),
            keys in prop::collection::vec(0..5u32, 20),
        ) {
            let count = lists.len() as u32;
            let mut edges = Edges::default();
            lists.iter().for_each(|list| edges.push(list.iter().map(|dep| dep % count)));
            let users = edges.turned();
            prop_assert_eq!(&users.turned(), &edges);
            match edges.sorted(&users, |at| keys[at as usize]) {
                Ok(order) => {
                    let mut place = vec![0; lists.len()];
                    (0..).zip(&order).for_each(|(number, &at)| place[at as usize] = number);
                    prop_assert_eq!(order.len(), lists.len());
                    for at in 0..count {
                        prop_assert!(edges.of(at).iter().all(|&dep| place[dep as usize] < place[at as usize]));
                        prop_assert!(edges.of(at).is_sorted_by(|a, b| a < b));
                    }
                    // Whoever stands before a node of a smaller key was waited for by it, or by one between them.
                    for pair in order.windows(2) {
                        let ascends = (keys[pair[0] as usize], pair[0]) < (keys[pair[1] as usize], pair[1]);
                        prop_assert!(ascends || edges.of(pair[1]).contains(&pair[0]));
                    }
                }
                Err(circle) => {
                    for (number, &at) in circle.iter().enumerate() {
                        prop_assert!(edges.of(at).contains(&circle[(number + 1) % circle.len()]));
                    }
                }
            }
        }
    }
}
