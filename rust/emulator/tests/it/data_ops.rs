//! Every operation on every dtype against the slow model.

use crate::support::model;

use ahbm_program::{BinaryFn, Dtype, Math, OpKind, ReduceFn, Scalar, Tile, UnaryFn};
use model::*;
use proptest::prelude::*;

const N: u64 = 333;

const FUNCTIONS: [BinaryFn; 15] = [
    BinaryFn::Add,
    BinaryFn::Sub,
    BinaryFn::Mul,
    BinaryFn::Div,
    BinaryFn::Max,
    BinaryFn::Min,
    BinaryFn::Lt,
    BinaryFn::Le,
    BinaryFn::Gt,
    BinaryFn::Ge,
    BinaryFn::Eq,
    BinaryFn::Ne,
    BinaryFn::And,
    BinaryFn::Or,
    BinaryFn::Xor,
];

fn negative(x: Num) -> bool {
    matches!(x, Num::F(x) if x.is_sign_negative())
}

fn binary(f: BinaryFn, dtype: Dtype, a: Num, b: Num) -> Num {
    let truth = |x: bool| if dtype.is_float() { Num::F(x.into()) } else { Num::I(x.into()) };
    let order = match (a, b) {
        (Num::I(a), Num::I(b)) => Some(a.cmp(&b)),
        _ => a.f().partial_cmp(&b.f()),
    };
    let nan = if a.f().is_nan() {
        Some(a)
    } else if b.f().is_nan() {
        Some(b)
    } else {
        None
    };
    let value = match f {
        // Of zeros, the sign decides.
        BinaryFn::Max => {
            nan.unwrap_or(if order.is_some_and(|o| o.is_gt() || o.is_eq() && !negative(a)) { a } else { b })
        }
        BinaryFn::Min => {
            nan.unwrap_or(if order.is_some_and(|o| o.is_lt() || o.is_eq() && negative(a)) { a } else { b })
        }
        BinaryFn::Lt => truth(order.is_some_and(|o| o.is_lt())),
        BinaryFn::Le => truth(order.is_some_and(|o| o.is_le())),
        BinaryFn::Gt => truth(order.is_some_and(|o| o.is_gt())),
        BinaryFn::Ge => truth(order.is_some_and(|o| o.is_ge())),
        BinaryFn::Eq => truth(order.is_some_and(|o| o.is_eq())),
        BinaryFn::Ne => truth(!order.is_some_and(|o| o.is_eq())),
        _ => match (a, b) {
            (Num::I(a), Num::I(b)) => Num::I(match f {
                BinaryFn::Add => a + b,
                BinaryFn::Sub => a - b,
                BinaryFn::Mul => a.wrapping_mul(b),
                BinaryFn::And => a & b,
                BinaryFn::Or => a | b,
                BinaryFn::Xor => a ^ b,
                _ => a / b,
            }),
            _ => Num::F(match f {
                BinaryFn::Add => a.f() + b.f(),
                BinaryFn::Sub => a.f() - b.f(),
                BinaryFn::Mul => a.f() * b.f(),
                _ => a.f() / b.f(),
            }),
        },
    };
    round(dtype, value)
}

fn without_zeros(f: BinaryFn, dtype: Dtype, numbers: &mut [Num]) {
    if f == BinaryFn::Div && !dtype.is_float() {
        numbers.iter_mut().filter(|n| n.f() == 0.0).for_each(|n| *n = Num::I(3));
    }
}

#[test]
fn binary_functions() {
    for dtype in Dtype::ALL {
        let tile = Tile::new(dtype, &[N]);
        for f in FUNCTIONS {
            let (a, mut b) = (sample(dtype, N as usize, 1), sample(dtype, N as usize, 2));
            without_zeros(f, dtype, &mut b);
            let want: Vec<Num> = a.iter().zip(&b).map(|(&a, &b)| binary(f, dtype, a, b)).collect();
            let got = apply(&[(&tile, &a), (&tile, &b)], &tile, |k, v, dst| {
                OpKind::Math(Math::Binary { f, dst, a: v[0], b: v[1], tile: k.body.tile(tile.clone()) })
            });
            if f.is_bitwise() && dtype.is_float() {
                let refused = got.unwrap_err();
                assert_eq!(
                    (refused.code, refused.hint.as_deref()),
                    ("AHBM-V311", Some("cast to an integer dtype first"))
                );
                continue;
            }
            assert_same(&got.unwrap(), &want, &format!("{f:?} {dtype}"));
        }
    }
}

#[test]
fn binary_functions_with_a_scalar_on_either_side() {
    for dtype in Dtype::ALL {
        let tile = Tile::new(dtype, &[N]);
        for (f, swapped) in FUNCTIONS.into_iter().flat_map(|f| [(f, false), (f, true)]) {
            let mut a = sample(dtype, N as usize, 3);
            if swapped {
                without_zeros(f, dtype, &mut a);
            }
            let (scalar, s) = if dtype.is_float() {
                (Scalar::float(2.7), round(dtype, Num::F(2.7)))
            } else {
                (Scalar::Int(-3), round(dtype, Num::I(-3)))
            };
            let want: Vec<Num> =
                a.iter().map(|&a| if swapped { binary(f, dtype, s, a) } else { binary(f, dtype, a, s) }).collect();
            let got = apply(&[(&tile, &a)], &tile, |k, v, dst| {
                OpKind::Math(Math::BinaryScalar {
                    f,
                    swapped,
                    dst,
                    a: v[0],
                    scalar: k.body.scalar(scalar),
                    tile: k.body.tile(tile.clone()),
                })
            });
            if f.is_bitwise() && dtype.is_float() {
                assert_eq!(got.unwrap_err().code, "AHBM-V311");
                continue;
            }
            assert_same(&got.unwrap(), &want, &format!("{f:?} {dtype} scalar, swapped: {swapped}"));
        }
    }
}

#[test]
fn unary_functions() {
    for dtype in Dtype::ALL {
        let tile = Tile::new(dtype, &[N]);
        let a = sample(dtype, N as usize, 4);
        for f in [UnaryFn::Neg, UnaryFn::Sqrt, UnaryFn::Exp, UnaryFn::Log] {
            let got = apply(&[(&tile, &a)], &tile, |k, v, dst| {
                OpKind::Math(Math::Unary { f, dst, a: v[0], tile: k.body.tile(tile.clone()) })
            });
            if !dtype.is_float() && f != UnaryFn::Neg {
                assert_eq!(got.unwrap_err().code, "AHBM-V311");
                continue;
            }
            let exact: Vec<Num> = a
                .iter()
                .map(|&x| match (x, f) {
                    (Num::I(n), _) => Num::I(-n),
                    (x, UnaryFn::Neg) => Num::F(-x.f()),
                    (x, UnaryFn::Sqrt) => Num::F(x.f().sqrt()),
                    (x, UnaryFn::Exp) => Num::F(x.f().exp()),
                    (x, UnaryFn::Log) => Num::F(x.f().ln()),
                })
                .map(|x| round(dtype, x))
                .collect();
            if matches!(f, UnaryFn::Neg | UnaryFn::Sqrt) {
                assert_same(&got.unwrap(), &exact, &format!("{f:?} {dtype}"));
                continue;
            }
            // Elementary functions may be off by one unit in the last place.
            let ulp = match dtype {
                Dtype::F16 => 1.0 / 1024.0,
                Dtype::BF16 => 1.0 / 128.0,
                Dtype::F8E4M3 => 1.0 / 8.0,
                Dtype::F8E5M2 => 1.0 / 4.0,
                Dtype::F32 => f64::from(f32::EPSILON),
                _ => f64::EPSILON,
            };
            for (g, w) in got.unwrap().iter().zip(&exact) {
                let close = (g.f() - w.f()).abs() <= ulp * w.f().abs() + 6e-8 * f64::from(dtype == Dtype::F16) + 1e-38;
                assert!(g.same(*w) || close, "{f:?} {dtype}: {g:?} {w:?}");
            }
        }
    }
}

#[test]
fn fma_rounds_once() {
    for dtype in Dtype::ALL {
        let tile = Tile::new(dtype, &[N]);
        let [a, b, c] = [5, 6, 7].map(|seed| sample(dtype, N as usize, seed));
        let want: Vec<Num> = (0..N as usize)
            .map(|i| match (dtype, a[i], b[i], c[i]) {
                (_, Num::I(a), Num::I(b), Num::I(c)) => round(dtype, Num::I(a.wrapping_mul(b).wrapping_add(c))),
                (Dtype::F32, a, b, c) => Num::F((a.f() as f32).mul_add(b.f() as f32, c.f() as f32).into()),
                (_, a, b, c) => round(dtype, Num::F(a.f().mul_add(b.f(), c.f()))),
            })
            .collect();
        let got = fma(&tile, &a, &b, &c);
        assert_same(&got, &want, &format!("fma {dtype}"));
    }
    // 7 * 37/256 is the midpoint of two bf16; the tiny addend decides, though f64 cannot hold the sum.
    let one = Tile::new(Dtype::BF16, &[1]);
    let tiny = Num::F(2f64.powi(-100));
    let below = fma(&one, &[Num::F(7.0)], &[Num::F(37.0 / 256.0)], &[Num::F(-tiny.f())]);
    assert!(below[0].same(Num::F(129.0 / 128.0)), "{below:?}");
    let above = fma(&one, &[Num::F(7.0)], &[Num::F(37.0 / 256.0)], &[tiny]);
    assert!(above[0].same(Num::F(130.0 / 128.0)), "{above:?}");
}

fn fma(tile: &Tile, a: &[Num], b: &[Num], c: &[Num]) -> Vec<Num> {
    let got = apply(&[(tile, a), (tile, b), (tile, c)], tile, |k, v, dst| {
        OpKind::Math(Math::Fma { dst, a: v[0], b: v[1], c: v[2], tile: k.body.tile(tile.clone()) })
    });
    got.unwrap()
}

#[test]
fn clamp_and_where() {
    for dtype in Dtype::ALL {
        let tile = Tile::new(dtype, &[N]);
        let [a, b, c] = [8, 9, 10].map(|seed| sample(dtype, N as usize, seed));
        let (lo, hi) = (round(dtype, Num::I(0)), round(dtype, Num::I(5)));
        let clamped = apply(&[(&tile, &a)], &tile, |k, v, dst| {
            OpKind::Math(Math::Clamp {
                dst,
                a: v[0],
                lo: k.body.scalar(Scalar::Int(0)),
                hi: k.body.scalar(Scalar::Int(5)),
                tile: k.body.tile(tile.clone()),
            })
        });
        let want: Vec<Num> =
            a.iter().map(|&x| binary(BinaryFn::Min, dtype, binary(BinaryFn::Max, dtype, x, lo), hi)).collect();
        assert_same(&clamped.unwrap(), &want, &format!("clamp {dtype}"));
        let chosen = apply(&[(&tile, &a), (&tile, &b), (&tile, &c)], &tile, |k, v, dst| {
            OpKind::Math(Math::Where { dst, cond: v[0], a: v[1], b: v[2], tile: k.body.tile(tile.clone()) })
        });
        let want: Vec<Num> = (0..N as usize).map(|i| if a[i].f() != 0.0 { b[i] } else { c[i] }).collect();
        assert_same(&chosen.unwrap(), &want, &format!("where {dtype}"));
    }
}

#[test]
fn casts_between_all_dtypes() {
    for (from, to) in Dtype::ALL.into_iter().flat_map(|f| Dtype::ALL.into_iter().map(move |t| (f, t))) {
        let (source, target) = (Tile::new(from, &[N]), Tile::new(to, &[N]));
        let a = sample(from, N as usize, 11);
        let want: Vec<Num> = a.iter().map(|&x| round(to, x)).collect();
        let got = apply(&[(&source, &a)], &target, |k, v, dst| {
            OpKind::Math(Math::Cast { dst, a: v[0], tile: k.body.tile(target.clone()) })
        });
        assert_same(&got.unwrap(), &want, &format!("cast {from} to {to}"));
    }
}

#[test]
fn full_and_arange() {
    for dtype in Dtype::ALL {
        let tile = Tile::new(dtype, &[N]);
        for start in [Scalar::float(0.3), Scalar::Int(-2)] {
            let number = |i: u32| match start {
                Scalar::Int(n) => Num::I(n + i128::from(i)),
                s => Num::F(s.as_f64() + f64::from(i)),
            };
            let got = apply(&[], &tile, |k, _, dst| {
                OpKind::Math(Math::Arange { dst, start: k.body.scalar(start), tile: k.body.tile(tile.clone()) })
            });
            let want: Vec<Num> = (0..N).map(|i| round(dtype, number(i.try_into().unwrap()))).collect();
            assert_same(&got.unwrap(), &want, &format!("arange {dtype}"));
            let got = apply(&[], &tile, |k, _, dst| {
                OpKind::Math(Math::Fill { dst, scalar: k.body.scalar(start), tile: k.body.tile(tile.clone()) })
            });
            assert_same(&got.unwrap(), &vec![round(dtype, number(0)); N as usize], &format!("full {dtype}"));
        }
    }
}

#[test]
fn reductions_run_in_index_order() {
    let (shape, inner) = ([3u64, 5, 4], 4);
    for dtype in Dtype::ALL {
        let tile = Tile::new(dtype, &shape);
        let a = sample(dtype, 60, 12);
        for (f, axis) in
            [ReduceFn::Sum, ReduceFn::Max, ReduceFn::Min].into_iter().flat_map(|f| [(f, -1i8), (f, 0), (f, 1), (f, 2)])
        {
            let (result, lines): (Vec<u64>, Vec<Vec<usize>>) = match axis {
                -1 => (vec![], vec![(0..60).collect()]),
                0 => (vec![5, 4], (0..20).map(|i| (0..3).map(|k| k * 20 + i).collect()).collect()),
                1 => (vec![3, 4], (0..12).map(|i| (0..5).map(|k| i / 4 * 20 + k * inner + i % 4).collect()).collect()),
                _ => (vec![3, 5], (0..15).map(|i| (0..4).map(|k| i * 4 + k).collect()).collect()),
            };
            let wide = if dtype.is_float() && dtype.bytes() < 4 { Dtype::F32 } else { dtype };
            let step = |x: Num, y: Num| match f {
                ReduceFn::Sum => binary(BinaryFn::Add, wide, x, y),
                ReduceFn::Max => binary(BinaryFn::Max, wide, x, y),
                ReduceFn::Min => binary(BinaryFn::Min, wide, x, y),
            };
            let want: Vec<Num> =
                lines.iter().map(|line| round(dtype, line.iter().map(|&i| a[i]).reduce(step).unwrap())).collect();
            let got = apply(&[(&tile, &a)], &Tile::new(dtype, &result), |k, v, dst| {
                OpKind::Math(Math::Reduce { f, axis, dst, a: v[0], tile: k.body.tile(tile.clone()) })
            });
            assert_same(&got.unwrap(), &want, &format!("{f:?} {dtype} axis {axis}"));
        }
    }
}

#[test]
fn reductions_of_nothing() {
    let (tile, result) = (Tile::new(Dtype::I32, &[2, 0]), Tile::new(Dtype::I32, &[2]));
    let reduce = |f| {
        apply(&[(&tile, &[])], &result, |k, v, dst| {
            OpKind::Math(Math::Reduce { f, axis: 1, dst, a: v[0], tile: k.body.tile(tile.clone()) })
        })
    };
    assert_same(&reduce(ReduceFn::Sum).unwrap(), &[Num::I(0); 2], "sum of nothing");
    assert_eq!(reduce(ReduceFn::Max).unwrap_err().code, "AHBM-V311");
}

#[test]
fn softmax_sums_to_one() {
    for dtype in Dtype::ALL {
        let tile = Tile::new(dtype, &[3, 4]);
        let a: Vec<Num> = (0..12).map(|i| round(dtype, Num::I(i % 5))).collect();
        for axis in [0i8, 1, -1] {
            let got = apply(&[(&tile, &a)], &tile, |k, v, dst| {
                OpKind::Math(Math::Softmax { axis, dst, a: v[0], tile: k.body.tile(tile.clone()) })
            });
            if !dtype.is_float() {
                assert_eq!(got.unwrap_err().code, "AHBM-V311");
                continue;
            }
            let got = got.unwrap();
            for i in 0..12usize {
                let line: Vec<usize> = if axis == 0 {
                    (0..3).map(|k| k * 4 + i % 4).collect()
                } else {
                    (0..4).map(|k| i / 4 * 4 + k).collect()
                };
                let want = a[i].f().exp() / line.iter().map(|&j| a[j].f().exp()).sum::<f64>();
                // Half of the spacing below 1.
                let half = match dtype {
                    Dtype::F8E4M3 => 1.0 / 32.0,
                    Dtype::F8E5M2 => 1.0 / 16.0,
                    _ => 0.004,
                };
                assert!((got[i].f() - want).abs() <= half, "{dtype} axis {axis}: {} {want}", got[i].f());
            }
        }
    }
}

#[test]
fn matrix_products() {
    let (m, k, n) = (3usize, 7usize, 5usize);
    for dtype in Dtype::ALL {
        // Small integers keep every order of summation exact; wrapping shows in the integer types.
        let number =
            |i: usize| if dtype.is_float() { Num::F((i % 7) as f64 - 3.0) } else { Num::I((i * 37 % 251) as i128) };
        let a: Vec<Num> = (0..m * k).map(|i| round(dtype, number(i))).collect();
        let b: Vec<Num> = (0..k * n).map(|i| round(dtype, number(i + 3))).collect();
        let results =
            if dtype.is_float() { &[dtype, Dtype::F32, Dtype::F64][..] } else { &[dtype, Dtype::I32, Dtype::I64][..] };
        for &to in results {
            let want: Vec<Num> = (0..m * n)
                .map(|at| {
                    let pairs = (0..k).map(|x| (a[at / n * k + x], b[x * n + at % n]));
                    let sum = pairs.fold(None, |sum: Option<Num>, (x, y)| {
                        Some(match (sum, x, y) {
                            (Some(Num::I(s)), Num::I(x), Num::I(y)) => Num::I(s + x * y),
                            (None, Num::I(x), Num::I(y)) => Num::I(x * y),
                            (s, x, y) => Num::F(s.map_or(0.0, Num::f) + x.f() * y.f()),
                        })
                    });
                    round(to, sum.unwrap())
                })
                .collect();
            let (ta, tb) = (Tile::new(dtype, &[m as u64, k as u64]), Tile::new(dtype, &[k as u64, n as u64]));
            let got = apply(&[(&ta, &a), (&tb, &b)], &Tile::new(to, &[m as u64, n as u64]), |kernel, v, dst| {
                OpKind::Math(Math::Dot {
                    dst,
                    a: v[0],
                    b: v[1],
                    tile: kernel.body.tile(Tile::new(to, &[m as u64, k as u64, n as u64])),
                })
            });
            assert_same(&got.unwrap(), &want, &format!("dot {dtype} to {to}"));
        }
        let turned = Tile::new(dtype, &[k as u64, m as u64]);
        let got = apply(&[(&Tile::new(dtype, &[m as u64, k as u64]), &a)], &turned, |kernel, v, dst| {
            OpKind::Math(Math::Transpose { dst, a: v[0], tile: kernel.body.tile(turned.clone()) })
        });
        let want: Vec<Num> = (0..m * k).map(|i| a[i % m * k + i / m]).collect();
        assert_same(&got.unwrap(), &want, &format!("trans {dtype}"));
    }
}

#[test]
fn integer_division() {
    let tile = Tile::new(Dtype::I8, &[4]);
    let [a, b] = [[-128, 7, -7, 5], [-1, -2, 2, 1]].map(|x| x.map(Num::I));
    let div = |b: &[Num]| {
        let f = BinaryFn::Div;
        apply(&[(&tile, &a), (&tile, b)], &tile, |k, v, dst| {
            OpKind::Math(Math::Binary { f, dst, a: v[0], b: v[1], tile: k.body.tile(tile.clone()) })
        })
    };
    assert_same(&div(&b).unwrap(), &[-128, -3, -3, 5].map(Num::I), "truncates and wraps");
    let error = div(&[1, 1, 0, 1].map(Num::I)).unwrap_err();
    assert!(error.code == "AHBM-V310" && error.message.contains("element 2"), "{error}");
}

proptest! {
    #[test]
    fn broadcasting(
        result in prop::collection::vec(1u64..4, 0..4),
        ones in prop::collection::vec(any::<bool>(), 8),
        drop in (0usize..4, 0usize..4),
        seed in any::<u64>(),
    ) {
        let shape = |mask: &[bool], drop: usize| -> Vec<u64> {
            result.iter().zip(mask).map(|(&d, &one)| if one { 1 } else { d }).skip(drop.min(result.len())).collect()
        };
        let (sa, sb) = (shape(&ones[..4], drop.0), shape(&ones[4..], drop.1));
        let [ta, tb, tile] = [&sa, &sb, &result].map(|s| Tile::new(Dtype::I32, s));
        let a = sample(Dtype::I32, ta.elements() as usize, seed);
        let b = sample(Dtype::I32, tb.elements() as usize, seed ^ 1);
        let at = |shape: &[u64], data: &[Num], index: &[u64]| {
            let tail = &index[index.len() - shape.len()..];
            let flat = shape.iter().zip(tail).fold(0, |n, (&d, &i)| n * d + if d == 1 { 0 } else { i });
            data[flat as usize]
        };
        let want: Vec<Num> = (0..tile.elements()).map(|mut flat| {
            let mut index = vec![0; result.len()];
            for axis in (0..result.len()).rev() {
                index[axis] = flat % result[axis];
                flat /= result[axis];
            }
            binary(BinaryFn::Sub, Dtype::I32, at(&sa, &a, &index), at(&sb, &b, &index))
        }).collect();
        let f = BinaryFn::Sub;
        let got = apply(&[(&ta, &a), (&tb, &b)], &tile, |k, v, dst| OpKind::Math(Math::Binary { f, dst, a: v[0], b: v[1], tile: k.body.tile(tile.clone()) }));
        assert_same(&got.unwrap(), &want, &format!("{ta} - {tb} = {tile}"));
    }
}
