//! Flows that meet on a link because each took one of several equal ways.

use crate::sip_links::Shape;
use crate::{LinkId, Machine};
use std::collections::BTreeMap;

/// A link that more flows take than would if they were spread evenly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// The link.
    pub link: LinkId,
    /// The flows on it, by the SIPs that send and receive.
    pub flows: Vec<(u32, u32)>,
    /// Flows that had the choice of this link.
    pub among: u32,
    /// The links of that choice, this one included.
    pub choice: Vec<LinkId>,
}

impl Collision {
    /// Most flows of a link if they were spread evenly.
    pub fn even(&self) -> u32 {
        self.among.div_ceil(self.choice.len().max(1) as u32)
    }
}

impl Machine {
    /// Where flows, by the SIPs that send and receive, meet although there are other ways: the links with more flows than
    /// an even spread gives, the most crowded first.
    pub fn collisions(&self, flows: &[(u32, u32)]) -> Vec<Collision> {
        let Shape::Custom(custom) = &self.sips.shape else { return Vec::new() };
        let mut on: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        // Flows that chose among the same links.
        let mut among: BTreeMap<Box<[u32]>, u32> = BTreeMap::new();
        for &(from, to) in flows.iter().filter(|(from, to)| from != to && *from.max(to) < self.sfr.sips) {
            custom.path_with(from, to, &mut |edge, equal| {
                on.entry(edge).or_default().push((from, to));
                *among.entry(equal.into()).or_default() += 1;
            });
        }
        let mut found = Vec::new();
        for (links, among) in among {
            let choice: Vec<LinkId> = links.iter().map(|link| LinkId(self.sip_base + link)).collect();
            for (&index, &link) in links.iter().zip(&choice) {
                let flows = on.get(&index).cloned().unwrap_or_default();
                found.push(Collision { link, flows, among, choice: choice.clone() });
            }
        }
        found.retain(|each| each.flows.len() as u32 > each.even());
        found.sort_by_key(|each| (std::cmp::Reverse(each.flows.len() as u32 / each.even().max(1)), each.link));
        found.dedup_by_key(|each| each.link);
        found
    }
}
