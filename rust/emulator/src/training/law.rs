//! How long a kernel takes by its shape, on a GPU of a data sheet: units (SMs or CUs), clock, peaks, bandwidth, L2.
//!
//! All laws have one form. A kernel moves bytes and issues work; the longer of the two, rounded where they meet, follows
//! a floor that it takes to start and end. Work is divided over the units in blocks, so few blocks leave units idle.

mod attention;
mod blocks;
mod products;
mod streams;
#[cfg(test)]
mod tests;

use super::bare::{bare, share};
use ahbm_machine::{Compute, Roofline};
use ahbm_workload::{Arithmetic, Kernel, Kind};

/// What a law needs to know of the device, and the parameters of the laws.
struct Device<'a> {
    compute: &'a Compute,
    roofline: &'a Roofline,
    /// Units: SMs or CUs.
    units: f64,
    /// Cycles of all units together in a nanosecond.
    cycles_per_ns: f64,
    /// What the L2 holds, in bytes.
    cache: f64,
}

/// How long a kernel takes in ps: what the law of its kind says.
pub(super) fn ps(roofline: &Roofline, compute: &Compute, kernel: &Kernel) -> f64 {
    if kernel.is_empty() {
        return 0.0;
    }
    if kernel.host {
        return bare(roofline, kernel);
    }
    let device = Device::new(roofline, compute);
    let d = kernel.dims.map(f64::from);
    let bytes = kernel.bytes as f64;
    let ns = match kernel.kind {
        Kind::Plain => return bare(roofline, kernel),
        Kind::Pointwise => {
            device.stream(kernel, d[0], compute.element.pointwise_cycles + d[1].min(4.0) * compute.element.erf_cycles)
        }
        Kind::Cast => device.cast(kernel, d[0]),
        Kind::Strided if d[1] != 0.0 => device.stream(kernel, d[0], compute.element.crossed_cycles),
        Kind::Strided => device.stream(kernel, d[0], compute.element.strided_cycles),
        Kind::Broadcast => device.broadcast(kernel, d[0]),
        Kind::Fill => device.fill(bytes),
        Kind::Random => device.stream(kernel, d[0], compute.element.random_cycles),
        Kind::Foreach => device.foreach(kernel, d[0], d[1]),
        Kind::Pool => device.pool(kernel, &d, false),
        Kind::PoolBackward => device.pool(kernel, &d, true),
        Kind::Gather => device.stream(kernel, d[0] * d[1], compute.element.strided_cycles),
        Kind::Scatter => device.scatter(kernel, &d),
        Kind::Norm => device.norm(kernel, d[0], d[1]),
        Kind::NormBackward => device.rows(bytes, d[0], d[1], compute.norm.row_cycles, compute.norm.backward_cycles),
        Kind::NormWeights => device.norm_weights(bytes, d[0], d[1]),
        Kind::Softmax => device.softmax(kernel, d[0], d[1], compute.softmax.cycles, 1.0),
        Kind::SoftmaxBackward => device.softmax(kernel, d[0], d[1], compute.softmax.backward_cycles, 2.0 / 3.0),
        Kind::Reduce => device.reduce(bytes, d[0], d[1], d[2]),
        Kind::BatchNorm => device.batch_norm(kernel, &d, false),
        Kind::BatchNormBackward => device.batch_norm(kernel, &d, true),
        Kind::Product => device.product(kernel, &d),
        Kind::Convolution => device.convolution(kernel, &d),
        Kind::Attention => device.attention(kernel, &d, false),
        Kind::AttentionBackward => device.attention(kernel, &d, true),
        Kind::EmbeddingBackward => device.embedding_backward(bytes, d[0], d[1], d[2]),
        Kind::Loss => device.loss(bytes, d[0], 1.0),
        Kind::LossBackward => device.loss(bytes, d[0], compute.loss.backward_share),
        Kind::Scan => device.scan(bytes),
        Kind::Sort => device.sort(bytes, d[0], d[1]),
    };
    (ns * 1000.0).ceil()
}

impl<'a> Device<'a> {
    fn new(roofline: &'a Roofline, compute: &'a Compute) -> Self {
        Self {
            compute,
            roofline,
            units: compute.units,
            cycles_per_ns: compute.units * compute.clock_mhz / 1000.0,
            cache: compute.l2_mib * f64::from(1 << 20),
        }
    }

    /// Nanoseconds of so many bytes at a share of the memory's bandwidth; what fits into the L2 goes faster.
    fn moving(&self, bytes: f64, share: f64) -> f64 {
        let beyond = bytes / (self.cache * self.compute.memory.l2_fill);
        let resident = 1.0 / (1.0 + beyond * beyond);
        let gain = (self.compute.memory.l2_cycle_bytes * self.cycles_per_ns / self.roofline.bytes_per_ns).max(1.0);
        let gained = resident / gain + (1.0 - resident);
        ratio(bytes * gained, self.roofline.bytes_per_ns * share)
    }

    /// Nanoseconds of so many cycles of one unit, divided over all.
    fn issuing(&self, cycles: f64) -> f64 {
        ratio(cycles, self.cycles_per_ns)
    }

    /// Operations per nanosecond at the peak of a type.
    fn peak(&self, arithmetic: Arithmetic) -> f64 {
        self.roofline.operations_per_ns * share(self.roofline, arithmetic)
    }
}

/// Nanoseconds of so much at a rate; nothing takes none, whatever the rate.
fn ratio(amount: f64, per_ns: f64) -> f64 {
    if amount == 0.0 { 0.0 } else { amount / per_ns }
}

/// The longer of two that overlap, rounded where they meet.
fn longer(a: f64, b: f64) -> f64 {
    let most = a.max(b);
    if most == 0.0 || !most.is_finite() {
        return most;
    }
    let (a, b) = (a / most, b / most);
    most * (a.powi(4) + b.powi(4)).sqrt().sqrt()
}

/// Bytes of an element of a type.
fn size(arithmetic: Arithmetic) -> f64 {
    match arithmetic {
        Arithmetic::Byte => 1.0,
        Arithmetic::Half => 2.0,
        Arithmetic::F32 | Arithmetic::Tf32 => 4.0,
        Arithmetic::F64 => 8.0,
    }
}
