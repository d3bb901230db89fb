//! Products of matrices, and convolutions as such.

use super::{Device, longer, ratio, size};
use ahbm_workload::{Arithmetic, Kernel};

/// Rows and columns of the result that a block makes, as libraries have them.
const TILES: [(f64, f64); 10] = [
    (256.0, 128.0),
    (128.0, 256.0),
    (128.0, 128.0),
    (64.0, 256.0),
    (256.0, 64.0),
    (64.0, 128.0),
    (128.0, 64.0),
    (64.0, 64.0),
    (64.0, 32.0),
    (32.0, 64.0),
];

/// The same of vector units. The small ones are what is left for narrow operands.
const VECTOR_TILES: [(f64, f64); 11] = [
    (256.0, 128.0),
    (128.0, 256.0),
    (128.0, 128.0),
    (64.0, 128.0),
    (128.0, 64.0),
    (64.0, 64.0),
    (32.0, 128.0),
    (128.0, 32.0),
    (64.0, 32.0),
    (32.0, 64.0),
    (32.0, 32.0),
];

/// Into how many parts libraries divide the inner dimension.
const PARTS: [f64; 10] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0];

/// Products C = A B of so many matrices.
struct Shape {
    batch: f64,
    m: f64,
    n: f64,
    k: f64,
}

/// How blocks of an engine work: their tiles and the steps of their inner loop, what share of the peak they reach, what a
/// narrow tile loses, what a block takes beside its inner loop, how much of a last wave that is not full is lost, what
/// adding parts takes, and which share of a unit's rate one block reaches that has the unit alone.
struct Engine {
    vector: bool,
    share: f64,
    narrow: f64,
    lone: f64,
    tile_ns: f64,
    wave: f64,
    split_ns: f64,
}

impl Device<'_> {
    pub(super) fn product(&self, kernel: &Kernel, d: &[f64; 10]) -> f64 {
        let of = self.compute;
        let shape = Shape { batch: d[0], m: d[1], n: d[2], k: d[3] };
        if shape.batch * shape.m * shape.n == 0.0 {
            return 0.0;
        }
        let moving = self.moving(kernel.bytes as f64, of.product.memory_share);
        if shape.m.min(shape.n) <= 1.0 {
            return of.kernel.start_ns + moving;
        }
        let engine = self.engine(kernel.arithmetic);
        let a = if d[4] == 0.0 { shape.k } else { shape.m };
        let b = if d[5] == 0.0 { shape.n } else { shape.k };
        let aligned = self.aligned(kernel.arithmetic, &[a, b, shape.n]);
        // Tensor units take operands of four bytes along the inner dimension alone.
        let turned = kernel.arithmetic == Arithmetic::Tf32 && d[4] != 0.0;
        let turned = if turned { of.product.tf32_turned_share } else { 1.0 };
        let rate = self.peak(kernel.arithmetic) * aligned * turned;
        of.product.start_ns + longer(self.tiled(&shape, &engine, rate, size(kernel.arithmetic), true), moving)
    }

    pub(super) fn convolution(&self, kernel: &Kernel, d: &[f64; 10]) -> f64 {
        let of = self.compute;
        let [samples, from, to, pixels_in, pixels_out, taps] = [d[0], d[1], d[2], d[3], d[4], d[5]];
        let (groups, pass) = (d[6].max(1.0), d[7]);
        let (from, to) = (from / groups, to / groups);
        if samples * from * to * pixels_out * taps == 0.0 {
            return 0.0;
        }
        let moving = self.moving(kernel.bytes as f64, of.product.memory_share);
        if from.min(to) <= 1.0 && groups > 1.0 {
            let cycles =
                if pass == 0.0 { of.convolution.depthwise_cycles } else { of.convolution.depthwise_backward_cycles };
            let taken = samples * groups * to.max(from) * if pass == 1.0 { pixels_in } else { pixels_out } * taps;
            return of.kernel.start_ns + longer(moving, self.issuing(taken * cycles));
        }
        let pixels = samples * pixels_out;
        if from.min(to) < 8.0 {
            let share = if pass == 2.0 { of.convolution.few_weight_share } else { 1.0 };
            let each = of.convolution.few_cycles * share * (1.0 + from.min(to) * taps / 160.0);
            return of.convolution.start_ns + longer(moving, self.issuing(pixels * groups * from.max(to) * each));
        }
        let shape = match pass {
            0.0 => Shape { batch: groups, m: pixels, n: to, k: from * taps },
            1.0 => {
                Shape { batch: groups, m: samples * pixels_in, n: from, k: to * taps * pixels_out / pixels_in.max(1.0) }
            }
            _ => Shape { batch: groups, m: to, n: from * taps, k: pixels },
        };
        let mut engine = self.engine(kernel.arithmetic);
        let vector = matches!(kernel.arithmetic, Arithmetic::F32 | Arithmetic::F64);
        let small = taps == 9.0 && d[9] <= 1.0;
        let plain = taps == 1.0 && d[9] <= 1.0 && (d[8] == 1.0 || vector);
        let (peak, share) = if vector {
            let winograd = if pass == 2.0 && small { of.convolution.winograd } else { 1.0 };
            let share =
                [of.convolution.vector_share, of.convolution.vector_input_share, of.convolution.vector_weight_share];
            // cuDNN has kernels for narrow results; none adds parts of the inner dimension but for the weight.
            (engine.narrow, engine.lone) = (0.0, of.convolution.lone);
            (self.peak(kernel.arithmetic) * winograd, self.moderate(share[pass as usize % 3]))
        } else if plain {
            (self.peak(kernel.arithmetic), engine.share)
        } else {
            let strided = if d[9] > 1.0 { of.convolution.strided_share } else { 1.0 };
            let weight = match kernel.arithmetic {
                Arithmetic::Tf32 => of.convolution.tf32_weight_share,
                _ => of.convolution.weight_share,
            };
            let share = [of.convolution.share, of.convolution.input_share * strided, weight][pass as usize % 3];
            (self.peak(kernel.arithmetic), share * engine.share)
        };
        let aligned = self.aligned(kernel.arithmetic, &[from, to]);
        let rate = peak * aligned;
        engine.share = share;
        let start = if plain { of.product.start_ns } else { of.convolution.start_ns };
        let split = pass == 2.0 || (plain && !vector);
        let direct = longer(self.tiled(&shape, &engine, rate, size(kernel.arithmetic), split), moving);
        if vector && small && pass == 0.0 && groups <= 1.0 {
            return start + direct.min(self.winograd(kernel, d));
        }
        start + direct
    }

    /// A forward convolution of 3 x 3 taps by the algorithm of Winograd (A. Lavin and S. Gray, arXiv 1509.09308), F(4 x 4,
    /// 3 x 3): operands are transformed into 36 products of matrices, a row of which is 4 x 4 pixels of the result.
    fn winograd(&self, kernel: &Kernel, d: &[f64; 10]) -> f64 {
        let of = self.compute;
        let [samples, from, to, pixels] = [d[0], d[1], d[2], d[4]];
        let side = (pixels.sqrt() / 4.0).ceil();
        let shape = Shape { batch: 36.0, m: samples * side * side, n: to, k: from };
        let mut engine = self.engine(kernel.arithmetic);
        engine.narrow = 0.0;
        engine.share = self.moderate(of.convolution.winograd_share);
        let size = size(kernel.arithmetic);
        let multiplying = self.tiled(&shape, &engine, self.peak(kernel.arithmetic), size, false);
        // What is transformed is written and read again.
        let transformed = 2.0 * 36.0 * (shape.m * (from + to) + from * to) * size;
        let moving = self.moving(kernel.bytes as f64 + transformed, of.product.memory_share);
        of.convolution.winograd_ns + multiplying + moving
    }

    /// The engine of a type: tensor units, or those of vectors.
    fn engine(&self, arithmetic: Arithmetic) -> Engine {
        let of = self.compute;
        match arithmetic {
            Arithmetic::F32 => Engine {
                vector: true,
                lone: 1.0,
                share: of.vector.share * self.sustained(),
                narrow: of.vector.narrow,
                tile_ns: of.vector.tile_ns,
                wave: of.vector.wave,
                split_ns: of.vector.split_ns,
            },
            _ => Engine {
                vector: false,
                lone: 1.0,
                share: [of.product.share, of.product.tf32_share][usize::from(arithmetic == Arithmetic::Tf32)]
                    * self.lasting(),
                narrow: of.product.narrow,
                tile_ns: of.product.tile_ns,
                wave: of.product.wave,
                split_ns: of.product.split_ns,
            },
        }
    }

    /// Which share of the clock lasts while all tensor units multiply: what power suffices for.
    pub(super) fn lasting(&self) -> f64 {
        self.powered(self.compute.product.watts_per_ghz).min(1.0)
    }

    /// The same of vector units, up to the clock that lasts under such work.
    fn sustained(&self) -> f64 {
        self.powered(self.compute.vector.watts_per_ghz).min(self.unhurried())
    }

    /// Which share of the peak vector units reach whose instructions are not all products: an operation takes the power
    /// that it takes in a product, so the clock falls only where there are as many as in products.
    fn moderate(&self, share: f64) -> f64 {
        let of = self.compute.vector;
        (share * self.unhurried()).min(of.share * self.powered(of.watts_per_ghz))
    }

    /// Which share of the clock lasts on vector units, whatever the power.
    fn unhurried(&self) -> f64 {
        (self.compute.vector.sustained_mhz / self.compute.clock_mhz).min(1.0)
    }

    /// How many times the clock power suffices for, at so many watts of a unit for each GHz.
    fn powered(&self, watts: f64) -> f64 {
        self.compute.watts / (self.units * watts) * 1000.0 / self.compute.clock_mhz
    }

    /// Which share of the rate tensor units keep where rows are not multiples of 16 bytes: loads are of 8, 4 or 2 bytes
    /// then, and of an older kind.
    fn aligned(&self, arithmetic: Arithmetic, sides: &[f64]) -> f64 {
        if matches!(arithmetic, Arithmetic::F32 | Arithmetic::F64) {
            return 1.0;
        }
        let size = size(arithmetic);
        let fits = |bytes: f64| sides.iter().all(|side| side * size % bytes == 0.0);
        match [16.0, 8.0, 4.0, 2.0].into_iter().find(|&bytes| fits(bytes)) {
            Some(16.0) => 1.0,
            load => (self.compute.product.unaligned * load.unwrap_or(1.0) / 4.0).min(1.0),
        }
    }

    /// The quickest of the tiles and parts of the inner dimension, at so many operations per ns of all units.
    fn tiled(&self, shape: &Shape, engine: &Engine, rate: f64, size: f64, split: bool) -> f64 {
        let unit = rate / self.units;
        let results = shape.batch * shape.m * shape.n;
        let mut least = f64::INFINITY;
        let (sizes, step): (&[(f64, f64)], f64) = if engine.vector { (&VECTOR_TILES, 16.0) } else { (&TILES, 64.0) };
        for &(rows, columns) in sizes {
            let tiles = shape.batch * (shape.m / rows).ceil() * (shape.n / columns).ceil();
            let more = if engine.vector {
                (128.0 / rows).max(1.0) * (128.0 / columns).max(1.0)
            } else {
                64.0 * (1.0 / rows + 1.0 / columns)
            };
            let narrow = 1.0 - engine.narrow + engine.narrow * more;
            for parts in PARTS {
                if parts > 1.0 && (!split || shape.k < parts * 128.0) {
                    break;
                }
                let deep = (shape.k / parts / step).ceil() * step;
                let taken = tiles * parts / self.units;
                let waves = if taken <= 1.0 { 1.0 } else { engine.wave * taken.ceil() + (1.0 - engine.wave) * taken };
                let waves = waves.max(1.0 / engine.lone);
                let block =
                    ratio(deep * rows * columns * 2.0, unit * (engine.share / narrow).min(1.0)) + engine.tile_ns;
                let mut ns = waves * block;
                if parts > 1.0 {
                    ns += engine.split_ns
                        + self.moving(results * (8.0 * parts + size), self.compute.product.memory_share);
                }
                least = least.min(ns);
            }
        }
        least
    }
}
