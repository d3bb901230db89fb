//! Kernels that read and write each element once, and those of tables.

use super::{Device, longer, size};
use ahbm_workload::{Arithmetic, Kernel};

impl Device<'_> {
    /// A function of each element: its bytes, or the instructions of its elements.
    pub(super) fn stream(&self, kernel: &Kernel, elements: f64, cycles: f64) -> f64 {
        let moving = self.moving(kernel.bytes as f64, self.compute.memory.share);
        self.compute.kernel.start_ns + longer(moving, self.issuing(elements * cycles))
    }

    /// Operands of several types, element by element; a copy that rounds to a type of two bytes has loads of 16 bytes.
    pub(super) fn cast(&self, kernel: &Kernel, elements: f64) -> f64 {
        let of = self.compute.element;
        let rounds = kernel.arithmetic == Arithmetic::Half && kernel.bytes as f64 <= 6.5 * elements;
        if rounds {
            return self.stream(kernel, elements, of.pointwise_cycles);
        }
        of.cast_ns + self.stream(kernel, elements, of.cast_cycles)
    }

    /// A repeated operand takes a place for each element, and so does each operand beside it.
    pub(super) fn broadcast(&self, kernel: &Kernel, elements: f64) -> f64 {
        let accesses = if elements == 0.0 { 0.0 } else { kernel.bytes as f64 / elements / size(kernel.arithmetic) };
        let cycles = self.compute.element.broadcast_cycles * (0.2 + 0.4 * accesses.clamp(1.0, 4.0));
        self.stream(kernel, elements, cycles)
    }

    /// Rows that are added where others may add: a warp finds the place of each.
    pub(super) fn scatter(&self, kernel: &Kernel, d: &[f64; 10]) -> f64 {
        let of = self.compute.table;
        let moving = self.moving(kernel.bytes as f64, self.compute.memory.share);
        let issuing = self.issuing(d[0] * (of.row_cycles + d[1] * of.scatter_cycles));
        self.compute.kernel.start_ns + longer(moving, issuing)
    }

    /// Each result finds its window, then goes through it; a gradient adds to one place.
    pub(super) fn pool(&self, kernel: &Kernel, d: &[f64; 10], backward: bool) -> f64 {
        let of = self.compute.pool;
        if backward {
            return self.stream(kernel, d[0], of.backward_cycles);
        }
        self.stream(kernel, d[0] * (9.0 + d[1]), of.cycles)
    }

    /// Writes alone. Nothing else starts as quickly.
    pub(super) fn fill(&self, bytes: f64) -> f64 {
        self.compute.element.fill_ns + self.moving(bytes, self.compute.memory.share)
    }

    /// One launch over chunks of many tensors: a block takes 65,536 elements of one, so few large tensors leave units idle.
    pub(super) fn foreach(&self, kernel: &Kernel, tensors: f64, elements: f64) -> f64 {
        let of = self.compute;
        if elements == 0.0 {
            return of.kernel.start_ns;
        }
        let accesses = kernel.bytes as f64 / elements / size(kernel.arithmetic);
        let moving = self.moving(kernel.bytes as f64, of.foreach.share);
        let issuing = self.issuing(elements * accesses * of.foreach.cycles);
        let chunk = (4.0 * elements / tensors.max(1.0)).min(elements).min(65_536.0);
        let serial = chunk * (of.foreach.chunk_cycles + accesses * of.foreach.cycles) * 1000.0 / of.clock_mhz;
        of.kernel.start_ns + longer(longer(moving, issuing), serial)
    }

    /// The gradient of a table. Up to 3,072 indices a block goes through all of them for 32 columns; more have been sorted,
    /// and rows that are met often are read as one.
    pub(super) fn embedding_backward(&self, bytes: f64, indices: f64, columns: f64, rows: f64) -> f64 {
        let of = self.compute;
        let moving = self.moving(bytes, of.memory.share);
        let work = if indices <= 3072.0 {
            indices * (columns / 32.0 / self.units).max(1.0) * of.table.index_ns
        } else {
            self.issuing(indices.min(4.0 * rows.max(1.0)) * columns * of.table.cycles)
        };
        of.kernel.start_ns + longer(moving, work)
    }

    /// A loss and its gradient: one block of up to 1,024 threads goes through the rows.
    pub(super) fn loss(&self, bytes: f64, rows: f64, share: f64) -> f64 {
        let threads = (rows / 16.0).clamp(32.0, 1024.0);
        let steps = rows / threads * self.compute.loss.row_ns * share;
        self.compute.kernel.start_ns + longer(self.moving(bytes, self.compute.memory.share), steps)
    }

    /// One pass of a sort: a block has a row, or all blocks have one.
    pub(super) fn sort(&self, bytes: f64, rows: f64, columns: f64) -> f64 {
        let of = self.compute;
        let moving = self.moving(bytes, of.memory.share);
        if rows <= 1.0 {
            return of.table.sort_ns + moving;
        }
        let cycles = of.table.sort_row_cycles * (columns / 32.0).max(1.0);
        of.kernel.start_ns + longer(moving, self.issuing(rows * cycles))
    }

    /// Running sums.
    pub(super) fn scan(&self, bytes: f64) -> f64 {
        self.compute.table.scan_ns + self.moving(bytes, self.compute.memory.share)
    }
}
