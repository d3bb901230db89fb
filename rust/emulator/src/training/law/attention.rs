//! Attention as one kernel.

use super::{Device, ratio};
use ahbm_workload::Kernel;

impl Device<'_> {
    /// Blocks of up to 128 queries of a head go through the keys that they see: products on the tensor units, then the
    /// exponential of each score. `d[8]` is 1 with dropout, whose random numbers are made for each score.
    pub(super) fn attention(&self, kernel: &Kernel, d: &[f64; 10], backward: bool) -> f64 {
        let of = self.compute;
        let [batch, heads, queries, keys, size, causal] = [d[0], d[1], d[2], d[3], d[4], d[5]];
        if batch * heads * queries * keys == 0.0 {
            return 0.0;
        }
        let rows = queries.clamp(16.0, 128.0);
        let blocks = batch * heads * (queries / rows).ceil();
        let seen = if causal == 0.0 { keys } else { ((keys + rows) / 2.0).min(keys) };
        // Where blocks of queries leave units idle, several share the keys of one, 512 each at least.
        let parts = if backward { 1.0 } else { (self.units / blocks).min(keys / 512.0).max(1.0) };
        let scores = seen.max(64.0) * rows / parts;
        let (share, exponential, products) = if backward {
            (of.attention.backward_share, of.attention.backward_score_cycles, 10.0)
        } else {
            (of.attention.share, of.attention.score_cycles, 4.0)
        };
        let unit = self.peak(kernel.arithmetic) / self.units;
        let random = if d[8] == 0.0 { 0.0 } else { of.attention.random_cycles };
        let multiplying = ratio(scores * products * size, unit * share.min(1.0));
        let rating = ratio(scores * (exponential + random) * 1000.0, of.clock_mhz);
        let backend = match d[6] {
            0.0 => of.attention.flash_share,
            1.0 => of.attention.efficient_share,
            _ => 1.0,
        };
        let block = multiplying.hypot(rating) / (backend.max(1e-3) * self.lasting()) + of.attention.tile_ns;
        let taken = blocks * parts / self.units;
        let waves = taken.max(1.0);
        of.attention.start_ns + (waves * block).max(self.moving(kernel.bytes as f64, of.memory.share))
    }
}
