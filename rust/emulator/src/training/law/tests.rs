use super::*;
use ahbm_machine::Machine;
use ahbm_workload::DIMS;

fn h200() -> (Roofline, Compute) {
    let text = "pe: {roofline: {peak_tflops: 989.4, memory_gbs: 4800, f32_share: 0.0676, f64_share: 0.0676}}\n\
                compute: {units: 132, clock_mhz: 1980, l2_mib: 60}";
    let machine = Machine::from_yaml(text, "t", &[]).unwrap();
    let mut roofline = *machine.roofline();
    [roofline.operations_per_ns, roofline.bytes_per_ns] = [989_400.0, 4800.0];
    (roofline, *machine.compute().unwrap())
}

fn kernel(kind: Kind, arithmetic: Arithmetic, dims: &[u32], operations: u64, bytes: u64) -> Kernel {
    let mut all = [0; DIMS];
    all[..dims.len()].copy_from_slice(dims);
    Kernel { kind, arithmetic, dims: all, ..Kernel::new(operations, bytes) }
}

fn product(arithmetic: Arithmetic, batch: u32, m: u32, n: u32, k: u32) -> Kernel {
    let [b, x, y, z] = [batch, m, n, k].map(u64::from);
    let bytes = size(arithmetic) as u64 * b * (x * z + z * y + x * y);
    kernel(Kind::Product, arithmetic, &[batch, m, n, k], 2 * b * x * y * z, bytes)
}

fn of(kernel: &Kernel) -> f64 {
    let (roofline, compute) = h200();
    ps(&roofline, &compute, kernel)
}

/// Every kind with dimensions of a middling size.
fn middling() -> Vec<Kernel> {
    let of = |kind| {
        let dims: &[u32] = match kind {
            Kind::Product => &[4, 512, 512, 512],
            Kind::Convolution => &[32, 64, 64, 784, 784, 9, 1, 0, 1, 1],
            Kind::Attention | Kind::AttentionBackward => &[4, 8, 512, 512, 64, 1, 0, 8],
            Kind::BatchNorm | Kind::BatchNormBackward => &[32, 64, 784, 1],
            Kind::Reduce => &[64, 512, 64],
            _ => &[2048, 1024, 1],
        };
        kernel(kind, Arithmetic::Half, dims, 1 << 30, 1 << 24)
    };
    Kind::ALL.into_iter().map(of).collect()
}

#[test]
fn what_has_no_work_takes_no_time() {
    for one in middling() {
        assert_eq!(of(&Kernel { operations: 0, bytes: 0, ..one }), 0.0, "{one:?}");
    }
}

#[test]
fn times_are_whole_and_the_same_again() {
    for one in middling() {
        let taken = of(&one);
        assert!(taken > 0.0 && taken.fract() == 0.0, "{one:?} {taken}");
        assert_eq!(taken.to_bits(), of(&one).to_bits());
    }
}

#[test]
fn no_dimension_is_too_large() {
    for one in middling() {
        for at in 0..DIMS {
            for most in [0, 1, u32::MAX] {
                let mut dims = one.dims;
                dims[at] = most;
                let taken = of(&Kernel { dims, operations: u64::MAX, bytes: u64::MAX, ..one });
                assert!(taken.is_finite() && taken >= 0.0, "{one:?} {at} {most} {taken}");
            }
        }
        let taken = of(&Kernel { dims: [u32::MAX; DIMS], operations: u64::MAX, bytes: u64::MAX, ..one });
        assert!(taken.is_finite() && taken > 0.0, "{one:?} {taken}");
    }
}

#[test]
fn products_of_whole_tiles_take_no_less_when_they_grow() {
    for arithmetic in Arithmetic::ALL {
        for at in 0..4 {
            let mut least = 0.0;
            for times in [1, 2, 4, 8, 16] {
                let mut dims = [2, 256, 256, 256];
                dims[at] *= times;
                let taken = of(&product(arithmetic, dims[0], dims[1], dims[2], dims[3]));
                assert!(taken >= least, "{arithmetic:?} {dims:?}");
                least = taken;
            }
        }
    }
}

#[test]
fn no_large_product_beats_the_data_sheet() {
    let (roofline, _) = h200();
    for arithmetic in Arithmetic::ALL {
        for dims in [[1, 4096, 4096, 4096], [1, 8192, 8192, 8192], [64, 2048, 2048, 128], [1, 16, 8192, 8192]] {
            let one = product(arithmetic, dims[0], dims[1], dims[2], dims[3]);
            assert!(of(&one) >= bare(&roofline, &one), "{arithmetic:?} {dims:?}");
        }
    }
}

#[test]
fn what_does_not_fit_into_the_cache_takes_the_memory_at_least() {
    let (roofline, _) = h200();
    for one in middling() {
        let large = Kernel { operations: 0, bytes: 1 << 34, ..one };
        if !matches!(one.kind, Kind::Plain) {
            assert!(of(&large) >= bare(&roofline, &large), "{one:?}");
        }
    }
}

#[test]
fn narrow_rows_and_odd_lengths_are_slower() {
    let half = |n| of(&product(Arithmetic::Half, 1, 4096, n, 4096));
    assert!(half(4097) > 2.0 * half(4096));
    assert!(half(4100) < half(4098) && half(4098) < half(4097));
    let f32 = |n| of(&product(Arithmetic::F32, 1, 4096, n, 4096));
    assert!(f32(4097) < 1.1 * f32(4096));
}

#[test]
fn one_more_tile_than_units_takes_longer() {
    let taken = |blocks: u32| of(&product(Arithmetic::Half, blocks, 256, 128, 512));
    assert!(taken(133) > taken(132));
    assert!(taken(264) < taken(265) && taken(265) < 1.5 * taken(264));
}

#[test]
fn causal_attention_takes_about_half_and_dropout_more() {
    let attention = |causal, dropout| {
        let dims = [4, 16, 8192, 8192, 128, causal, 2, 16, dropout];
        of(&kernel(Kind::Attention, Arithmetic::Half, &dims, 1 << 40, 1 << 28))
    };
    let share = attention(1, 0) / attention(0, 0);
    assert!((0.48..0.56).contains(&share), "{share}");
    assert!(attention(1, 1) > 1.2 * attention(1, 0));
}

#[test]
fn gradients_of_norms_weights_take_what_their_rows_take() {
    let weights = |rows, columns| {
        let bytes = 8 * u64::from(rows) * u64::from(columns);
        of(&kernel(Kind::NormWeights, Arithmetic::F32, &[rows, columns], 0, bytes))
    };
    let [small, wide, long] = [weights(8192, 384), weights(8192, 768), weights(16384, 384)];
    assert!(wide < 1.05 * small && long > 1.8 * small);
}

#[test]
fn copies_of_the_host_go_over_its_link() {
    let (roofline, compute) = h200();
    let one = Kernel { host: true, ..kernel(Kind::Pointwise, Arithmetic::F32, &[1 << 20], 0, 1 << 22) };
    assert_eq!(ps(&roofline, &compute, &one), bare(&roofline, &one));
}

#[test]
fn units_that_lack_power_multiply_at_a_lower_clock() {
    let (roofline, compute) = h200();
    let attention = kernel(Kind::Attention, Arithmetic::Half, &[1, 32, 8192, 8192, 128, 1, 2, 32], 1 << 42, 1 << 28);
    for one in [Arithmetic::F32, Arithmetic::Half].map(|of| product(of, 1, 8192, 8192, 8192)).iter().chain([&attention])
    {
        let watts = |watts| ps(&roofline, &Compute { watts, ..compute }, one);
        assert_eq!(watts(700.0), watts(f64::INFINITY), "{one:?}");
        let share = watts(150.0) / watts(300.0);
        assert!((1.9..2.1).contains(&share), "{share} {one:?}");
    }
}

#[test]
fn convolutions_leave_power_for_their_clock_until_they_multiply_as_much_as_products() {
    let (roofline, compute) = h200();
    let taken = |watts, one: &Kernel| ps(&roofline, &Compute { watts, ..compute }, one);
    let dims = [64, 256, 256, 3136, 3136, 9, 1, 1, 0, 1];
    let one = kernel(Kind::Convolution, Arithmetic::F32, &dims, 1 << 41, 1 << 27);
    let many = product(Arithmetic::F32, 1, 8192, 8192, 8192);
    assert_eq!(taken(300.0, &one), taken(700.0, &one));
    assert!(taken(300.0, &many) > 1.2 * taken(700.0, &many));
    assert!((1.9..2.1).contains(&(taken(100.0, &one) / taken(200.0, &one))));
}

#[test]
fn units_of_vectors_and_of_tensors_each_have_their_power() {
    let (roofline, compute) = h200();
    let limited = Compute { watts: 250.0, ..compute };
    let mut frugal = limited;
    frugal.product.watts_per_ghz /= 2.0;
    let ratio = |of| {
        let one = product(of, 1, 8192, 8192, 8192);
        ps(&roofline, &limited, &one) / ps(&roofline, &frugal, &one)
    };
    assert!(ratio(Arithmetic::Half) > 1.9 && ratio(Arithmetic::F32) == 1.0);
}

#[test]
fn one_query_reads_its_keys_on_all_units() {
    let decoding =
        |keys: u32| of(&kernel(Kind::Attention, Arithmetic::Half, &[1, 32, 1, keys, 128, 0, 2, 32], 1 << 30, 1 << 20));
    assert!(decoding(2048) < 1.1 * decoding(512));
    assert!(decoding(32_768) > 2.0 * decoding(2048));
}

#[test]
fn narrow_tiles_of_vector_units_take_what_the_device_says_of_them() {
    let (roofline, compute) = h200();
    let taken = |narrow: f64, n: u32| {
        let mut changed = compute;
        changed.vector.narrow = narrow;
        ps(&roofline, &changed, &product(Arithmetic::F32, 512, 1024, n, 1024))
    };
    assert!(taken(0.0, 64) < 0.55 * taken(0.0, 128));
    assert!(taken(1.0, 64) > 0.98 * taken(1.0, 128));
}

#[test]
fn inner_dimensions_of_vector_units_go_by_sixteen() {
    let taken = |k| of(&product(Arithmetic::F32, 512, 1024, 1024, k));
    assert!(taken(96) < 0.8 * taken(128));
}

#[test]
fn three_by_three_taps_in_f32_are_multiplied_by_winograds_algorithm_where_that_is_quicker() {
    let (roofline, compute) = h200();
    let convolution = |winograd_share, side: u32, stride, samples| {
        let mut changed = compute;
        changed.convolution.winograd_share = winograd_share;
        let dims = [samples, 512, 512, side * side, side * side / stride / stride, 9, 1, 0, 0, stride];
        let one = kernel(Kind::Convolution, Arithmetic::F32, &dims, 1 << 40, 1 << 20);
        ps(&roofline, &changed, &one)
    };
    assert!(convolution(0.95, 32, 1, 64) < 0.6 * convolution(1e-3, 32, 1, 64));
    assert_eq!(convolution(0.95, 32, 2, 64), convolution(1e-3, 32, 2, 64));
    assert_eq!(convolution(0.95, 4, 1, 1), convolution(1e-3, 4, 1, 1));
    // Tiles of 4 x 4 pixels: 5 x 5 take as long as 8 x 8.
    assert!(convolution(0.95, 13, 1, 512) > 0.95 * convolution(0.95, 16, 1, 512));
}

#[test]
fn the_cache_gives_what_units_take_whatever_the_memory_gives() {
    let (roofline, compute) = h200();
    let taken = |bytes_per_ns, bytes| {
        let mut start = compute;
        start.kernel.start_ns = 0.0;
        start.element.pointwise_cycles = 0.0;
        let one = kernel(Kind::Pointwise, Arithmetic::F32, &[1 << 18], 1 << 18, bytes);
        ps(&Roofline { bytes_per_ns, ..roofline }, &start, &one)
    };
    let held = taken(2400.0, 1 << 21) / taken(4800.0, 1 << 21);
    assert!((0.99..1.01).contains(&held), "{held}");
    let beyond = taken(2400.0, 1 << 34) / taken(4800.0, 1 << 34);
    assert!((1.99..2.01).contains(&beyond), "{beyond}");
    assert!(taken(f64::INFINITY, 1 << 21).is_finite());
}

#[test]
fn rows_that_the_cache_does_not_hold_are_read_again() {
    let (mut roofline, mut compute) = h200();
    roofline.bytes_per_ns = 900.0;
    compute.memory.l2_cycle_bytes = 0.0;
    let rows = |kind, l2_mib| {
        let one = kernel(kind, Arithmetic::F32, &[1 << 14, 1 << 14], 0, 1 << 31);
        ps(&roofline, &Compute { l2_mib, ..compute }, &one)
    };
    let again = |kind| rows(kind, 1.0) / rows(kind, 1000.0);
    for (kind, times) in [(Kind::Norm, 1.5), (Kind::Softmax, 2.0), (Kind::SoftmaxBackward, 5.0 / 3.0)] {
        assert!((0.93 * times..1.03 * times).contains(&again(kind)), "{kind:?} {}", again(kind));
    }
}
