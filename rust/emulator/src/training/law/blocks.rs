//! Kernels of which a block works on a row, a column or a channel.

use super::{Device, longer, size};
use ahbm_workload::{Arithmetic, Kernel};

impl Device<'_> {
    /// Work of blocks that all units hold: what a block takes beside its elements, and its elements.
    fn blocks(
        &self,
        bytes: f64,
        share: f64,
        blocks: f64,
        elements: f64,
        (block, element): (f64, f64),
        full: f64,
    ) -> f64 {
        let occupied = (blocks / (self.units * full)).min(1.0);
        let issuing = self.issuing(elements * element) / occupied.max(1e-6);
        longer(self.moving(bytes, share), issuing) + self.issuing(blocks * block)
    }

    /// Which part of the rows that all units work on, so many each, is not in the L2 when they are read again.
    fn missed(&self, each: f64, rows: f64, columns: f64, size: f64) -> f64 {
        let beyond = rows.min(self.units * each) * columns * size / (self.cache * self.compute.memory.l2_fill);
        1.0 - 1.0 / (1.0 + beyond * beyond)
    }

    /// Softmax of each row. Those longer than 1,024 are read again by their block, which moves `again` times the bytes;
    /// a unit has four.
    pub(super) fn softmax(&self, kernel: &Kernel, rows: f64, columns: f64, element: f64, again: f64) -> f64 {
        if rows == 0.0 {
            return 0.0;
        }
        let of = self.compute;
        let bytes = kernel.bytes as f64;
        let (share, more) = if columns > 1024.0 {
            (of.softmax.long_share, again * self.missed(4.0, rows, columns, size(kernel.arithmetic)))
        } else {
            (of.memory.share, 0.0)
        };
        let work = (of.softmax.row_cycles, element);
        of.softmax.start_ns + self.blocks(bytes * (1.0 + more), share, rows, rows * columns, work, 1.0)
    }

    /// A norm reads each row twice, for its moments and to write; a unit has 16 blocks of 128 threads.
    pub(super) fn norm(&self, kernel: &Kernel, rows: f64, columns: f64) -> f64 {
        let of = self.compute.norm;
        let more = 0.5 * self.missed(16.0, rows, columns, size(kernel.arithmetic));
        self.rows(kernel.bytes as f64 * (1.0 + more), rows, columns, of.row_cycles, of.cycles)
    }

    /// A block goes through each row.
    pub(super) fn rows(&self, bytes: f64, rows: f64, columns: f64, row: f64, element: f64) -> f64 {
        if rows == 0.0 {
            return 0.0;
        }
        let work = self.blocks(bytes, self.compute.memory.share, rows, rows * columns, (row, element), 1.0);
        self.compute.kernel.start_ns + work
    }

    /// The gradient of a norm's weights: a block goes down 32 columns, whatever the rows; from 65,536 rows on, many do.
    pub(super) fn norm_weights(&self, bytes: f64, rows: f64, columns: f64) -> f64 {
        let blocks = (columns / 32.0).ceil();
        let moving = self.moving(bytes, self.compute.memory.share);
        let waves = (blocks / self.units).max(1.0);
        let deep = if rows > 65_536.0 && blocks < self.units / 2.0 { rows * blocks / self.units } else { rows };
        self.compute.kernel.start_ns + longer(moving, deep * self.compute.norm.weights_ns * waves)
    }

    /// Sums, as torch's reductions divide them. A block of 512 threads goes along rows: a row has 32 threads, or all where
    /// there are fewer than 16 rows; each takes four elements a step. Down columns it takes 128 of them and 16 rows a step.
    /// Where a thread would take 256 elements or more, blocks share a sum, as many as the device holds, and the last adds.
    pub(super) fn reduce(&self, bytes: f64, outer: f64, reduced: f64, inner: f64) -> f64 {
        let of = self.compute;
        let results = outer * inner;
        let elements = results * reduced;
        if elements == 0.0 {
            return 0.0;
        }
        let (blocks, threads, full) = if inner <= 1.0 {
            let rows = results.min(16.0);
            ((results / rows).ceil(), 512.0 / rows, 4.0)
        } else {
            ((results / 128.0).ceil(), 4.0, 16.0)
        };
        let each = reduced / threads;
        let parts = if each >= 256.0 { (each / 16.0).min(full * self.units / blocks).max(1.0) } else { 1.0 };
        let steps = each / (4.0 * parts) * of.reduce.step_ns;
        let share = if inner <= 1.0 { of.memory.share } else { of.reduce.share };
        let work = longer(self.moving(bytes, share), self.issuing(elements * of.reduce.cycles));
        let shared = if parts > 1.0 { of.reduce.shared_ns + parts / threads * of.reduce.part_ns } else { 0.0 };
        of.reduce.start_ns + longer(work, steps) + self.issuing(results * of.reduce.result_cycles) + shared
    }

    /// Batch norm. With channels first a block has a channel, with channels last 32 of them and a share of the pixels. One
    /// kernel may do all, or one the statistics and one the elements: what it reads and writes for an element says which.
    pub(super) fn batch_norm(&self, kernel: &Kernel, d: &[f64; 10], backward: bool) -> f64 {
        let of = self.compute.batch_norm;
        let [samples, channels, pixels] = [d[0], d[1], d[2]];
        let elements = samples * channels * pixels;
        if elements == 0.0 {
            return 0.0;
        }
        let bytes = kernel.bytes as f64;
        let share = self.compute.memory.share;
        let accesses = bytes / elements / size(kernel.arithmetic);
        let sums = accesses < if backward { 2.5 } else { 1.5 };
        let statistics = if backward { of.backward_cycles } else { of.cycles };
        let each = if backward { of.backward_element_cycles } else { of.element_cycles };
        if d[3] == 0.0 {
            let all = if backward { of.first_backward_cycles } else { of.first_cycles };
            let cycles = if sums { statistics } else { all };
            let work = self.blocks(bytes, share, channels, elements, (of.block_cycles, cycles), 1.0);
            return self.compute.kernel.start_ns + work;
        }
        let deep = (samples * pixels / 128.0).clamp(1.0, 128.0);
        let blocks = (channels / 32.0).ceil() * deep;
        // cuDNN does all in one kernel, which reads its input again; torch's own, of types of two bytes, are two.
        let whole = !sums && kernel.arithmetic == Arithmetic::F32;
        let (moved, cycles) = match (sums, whole) {
            (true, _) => (bytes, statistics),
            (_, true) => (1.5 * bytes, each + statistics),
            _ => (bytes, each),
        };
        of.start_ns + self.blocks(moved, share, blocks, elements, (0.0, cycles), 2.0)
    }
}
