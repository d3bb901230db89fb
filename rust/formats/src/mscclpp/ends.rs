//! Which end of a channel a signal arrives at.

use super::schema::{Gpu, Kind};
use ahbm_plan::execution::End;
use rustc_hash::FxHashMap;

/// Ends of all memory and port channels, numbered over all ranks.
pub(super) struct Ends {
    /// Per rank and kind: its ends by channel id.
    ids: Vec<[Vec<u32>; 2]>,
    /// The other end; `None` where the peer has too few channels.
    partner: Vec<Option<u32>>,
    /// Every end, in order.
    pub(super) all: Vec<End>,
}

impl Ends {
    /// The k-th channel from a to b is one with the k-th from b to a, per kind.
    pub(super) fn of(gpus: &[Gpu<'_>]) -> Self {
        let mut ids: Vec<[Vec<u32>; 2]> = Vec::with_capacity(gpus.len());
        let mut by_pair: FxHashMap<(Kind, u32, u32), Vec<u32>> = FxHashMap::default();
        let (mut all, mut positions) = (Vec::new(), Vec::new());
        for (rank, gpu) in gpus.iter().enumerate() {
            let mut own: [Vec<u32>; 2] = Default::default();
            for channel in &gpu.channels {
                let kind = channel.channel_type;
                let Some(slot) = kind.way() else { continue };
                for &peer in &channel.connected_to {
                    let end = all.len() as u32;
                    let list = by_pair.entry((kind, rank as u32, peer)).or_default();
                    all.push(End { rank: rank as u32, kind, peer });
                    positions.push(list.len());
                    list.push(end);
                    own[slot].push(end);
                }
            }
            ids.push(own);
        }
        let other = |(end, &k): (&End, &usize)| by_pair.get(&(end.kind, end.peer, end.rank))?.get(k).copied();
        Self { ids, partner: all.iter().zip(&positions).map(other).collect(), all }
    }

    /// A rank's own end of a channel.
    pub(super) fn own(&self, rank: u32, kind: Kind, id: u32) -> Option<u32> {
        self.ids[rank as usize][kind.way()?].get(id as usize).copied()
    }

    /// The end that a signal on `own` arrives at.
    pub(super) fn other(&self, own: u32) -> Option<u32> {
        self.partner[own as usize]
    }
}
