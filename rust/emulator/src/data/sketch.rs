//! The contents of buffers as formulas: which bytes of which arrays they are made of, and by which functions.
//!
//! Formulas are shared: equal ones have one number, whatever pieces they were made in. A formula is about all bytes of
//! its arrays at once, so a part of a buffer is a formula and the byte of its first array at which the part begins.

use super::element::dispatch;
use super::elementwise;
use super::error::Fault;
use super::image::{Image, Place};
use ahbm_findings::Diagnostic;
use ahbm_program::{BinaryFn, Body, BufferId, Dtype, Math, Program, Scalar, Tile};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Formulas, and parts of values, that are followed at most.
const MOST: usize = 1 << 23;

/// A formula; operands by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Formula {
    Zeros,
    /// The array of this number.
    Array(u32),
    /// `f(a, b)`; the bytes of `b` are `shift` bytes behind those of `a`. Elements begin `phase` bytes behind multiples of
    /// their size.
    Binary {
        f: BinaryFn,
        dtype: Dtype,
        phase: u8,
        a: u32,
        b: u32,
        shift: i64,
    },
    /// `f(a, scalar)`, or `f(scalar, a)` when `swapped`.
    Scalar {
        f: BinaryFn,
        swapped: bool,
        dtype: Dtype,
        phase: u8,
        a: u32,
        scalar: Scalar,
    },
}

/// `len` bytes of a formula, from its byte `at` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) formula: u32,
    pub(super) at: i64,
    pub(super) len: u64,
}

impl Part {
    fn cut(self, from: u64, to: u64) -> Self {
        Self { at: if self.formula == ZEROS { 0 } else { self.at + from as i64 }, len: to - from, ..self }
    }
}

/// The number of [`Formula::Zeros`].
const ZEROS: u32 = 0;

/// A value's contents.
#[derive(Debug, Clone)]
pub(super) struct Traced<'p> {
    parts: Rc<[Part]>,
    tile: &'p Tile,
}

/// The buffers of a program.
#[derive(Debug)]
pub(super) struct Sketch {
    formulas: IndexSet<Formula, FxBuildHasher>,
    /// Per formula, the functions in it.
    pub(super) weights: Vec<u64>,
    /// Per buffer, its parts by their first bytes; together they are the whole buffer.
    buffers: Vec<BTreeMap<u64, Part>>,
    /// Bytes that functions have made.
    pub(super) made: u64,
    parts: usize,
}

impl Sketch {
    pub(super) fn new(program: &Program) -> Self {
        let whole = |bytes| (bytes > 0).then_some((0, Part { formula: ZEROS, at: 0, len: bytes }));
        let buffers = program.buffers.iter().map(|b| whole(b.bytes).into_iter().collect()).collect();
        let formulas = [Formula::Zeros].into_iter().collect();
        Self { formulas, weights: vec![0], buffers, made: 0, parts: 0 }
    }

    /// Bytes of an array in a buffer.
    pub(super) fn put_array(&mut self, array: u32, at: u64, to: Place, len: u64) {
        let formula = self.number(Formula::Array(array), 0);
        if len > 0 {
            self.put(to, &[Part { formula, at: at as i64, len }]);
        }
    }

    pub(super) fn formula(&self, number: u32) -> Formula {
        self.formulas.get_index(number as usize).copied().unwrap_or(Formula::Zeros)
    }

    /// The contents of bytes of a buffer.
    pub(super) fn parts(&self, (buffer, offset): Place, len: u64) -> Vec<Part> {
        let (mut found, end) = (Vec::new(), offset + len);
        let buffer = &self.buffers[buffer.0 as usize];
        let first = buffer.range(..=offset).next_back().map_or(0, |(&at, _)| at);
        for (&at, &part) in buffer.range(first..end) {
            join(&mut found, part.cut(offset.max(at) - at, end.min(at + part.len) - at));
        }
        found
    }

    fn put(&mut self, (buffer, offset): Place, parts: &[Part]) {
        let buffer = &mut self.buffers[buffer.0 as usize];
        let end = offset + parts.iter().map(|part| part.len).sum::<u64>();
        for edge in [offset, end] {
            if let Some((&at, &part)) = buffer.range(..edge).next_back()
                && edge < at + part.len
            {
                buffer.insert(at, part.cut(0, edge - at));
                buffer.insert(edge, part.cut(edge - at, part.len));
            }
        }
        let stale: Vec<u64> = buffer.range(offset..end).map(|(&at, _)| at).collect();
        for at in stale {
            buffer.remove(&at);
        }
        let mut at = offset;
        for &part in parts {
            buffer.insert(at, part);
            at += part.len;
        }
    }

    fn number(&mut self, formula: Formula, weight: u64) -> u32 {
        let (number, new) = self.formulas.insert_full(formula);
        if new {
            self.weights.push(weight);
        }
        number as u32
    }

    fn value<'p>(&mut self, parts: Vec<Part>, tile: &'p Tile) -> Result<Traced<'p>, Fault> {
        self.parts += parts.len();
        if self.parts.max(self.formulas.len()) > MOST {
            return Err(not_followed());
        }
        self.made += tile.bytes();
        Ok(Traced { parts: parts.into(), tile })
    }

    fn scalar<'p>(
        &mut self,
        f: BinaryFn,
        swapped: bool,
        a: &Traced<'p>,
        scalar: Scalar,
        tile: &'p Tile,
    ) -> Result<Traced<'p>, Fault> {
        let dtype = tile.dtype;
        let divides = dispatch!(dtype, T => elementwise::may_divide::<T>(f, (!swapped).then_some(scalar)));
        if !fits(a, tile) || !divides || !defined(f, dtype) {
            return Err(not_followed());
        }
        let mut parts = Vec::new();
        for &part in &*a.parts {
            whole_elements(part, dtype, part.len)?;
            let phase = phase(part.at, dtype);
            let made = Formula::Scalar { f, swapped, dtype, phase, a: part.formula, scalar };
            let formula = self.number(made, self.weights[part.formula as usize].saturating_add(1));
            join(&mut parts, Part { formula, ..part });
        }
        self.value(parts, tile)
    }
}

/// What is not element by element, may fail, or takes too long to follow.
fn not_followed() -> Fault {
    Fault::Undefined { what: "not followed".to_owned(), hint: "" }
}

fn fits(value: &Traced<'_>, tile: &Tile) -> bool {
    value.tile.dtype == tile.dtype && value.tile.bytes() == tile.bytes()
}

fn defined(f: BinaryFn, dtype: Dtype) -> bool {
    !f.is_bitwise() || !dispatch!(dtype, T => <T as super::element::Element>::FLOAT)
}

/// Refuses parts that cut elements, and zeros, which have no place in an array.
fn whole_elements(part: Part, dtype: Dtype, len: u64) -> Result<(), Fault> {
    if part.formula == ZEROS || !len.is_multiple_of(dtype.bytes()) { Err(not_followed()) } else { Ok(()) }
}

/// How far an element at `at` begins behind a multiple of its size.
pub(super) fn phase(at: i64, dtype: Dtype) -> u8 {
    at.rem_euclid(dtype.bytes() as i64) as u8
}

/// Appends a part; one that goes on where the last ends becomes one with it.
fn join(parts: &mut Vec<Part>, part: Part) {
    match parts.last_mut() {
        Some(last)
            if last.formula == part.formula && (part.formula == ZEROS || last.at + last.len as i64 == part.at) =>
        {
            last.len += part.len;
        }
        _ if part.len == 0 => {}
        _ => parts.push(part),
    }
}

impl<'p> Image<'p> for Sketch {
    type Value = Traced<'p>;

    fn reserve(&self, _: BufferId) -> Result<(), Diagnostic> {
        Ok(())
    }

    fn read(&self, from: Place, tile: &'p Tile) -> Result<Traced<'p>, Fault> {
        Ok(Traced { parts: self.parts(from, tile.bytes()).into(), tile })
    }

    fn write(&mut self, to: Place, value: &Traced<'p>) {
        self.put(to, &value.parts);
    }

    fn copy(&mut self, from: Place, to: Place, bytes: u64) {
        let parts = self.parts(from, bytes);
        self.put(to, &parts);
    }

    fn tile(value: &Traced<'p>) -> &'p Tile {
        value.tile
    }

    fn reshaped(value: Traced<'p>, tile: &'p Tile) -> Traced<'p> {
        Traced { tile, ..value }
    }

    fn apply(
        &mut self,
        body: &Body,
        math: Math,
        values: [Option<Traced<'p>>; 3],
        tile: &'p Tile,
        _: &'p Tile,
    ) -> Option<Result<Traced<'p>, Fault>> {
        Some(match (math, values) {
            (Math::Binary { f, .. }, [Some(a), Some(b), _]) => self.binary(f, a, b, tile),
            (Math::BinaryScalar { f, swapped, scalar, .. }, [Some(a), ..]) => {
                self.scalar(f, swapped, &a, body.scalars[scalar as usize], tile)
            }
            _ => Err(not_followed()),
        })
    }

    fn binary(&mut self, f: BinaryFn, a: Traced<'p>, b: Traced<'p>, tile: &'p Tile) -> Result<Traced<'p>, Fault> {
        let dtype = tile.dtype;
        let divides = dispatch!(dtype, T => elementwise::may_divide::<T>(f, None));
        if !fits(&a, tile) || !fits(&b, tile) || !divides || !defined(f, dtype) {
            return Err(not_followed());
        }
        // The bits of these do not depend on the order; one order makes equal sums one formula.
        let integer = !dispatch!(dtype, T => <T as super::element::Element>::FLOAT);
        let commutes = matches!(f, BinaryFn::Add | BinaryFn::Mul)
            || f.is_bitwise()
            || integer && matches!(f, BinaryFn::Max | BinaryFn::Min);
        let (mut parts, mut i, mut j) = (Vec::new(), 0, 0);
        let (mut skip_a, mut skip_b) = (0, 0);
        while let (Some(x), Some(y)) = (a.parts.get(i), b.parts.get(j)) {
            let len = (x.len - skip_a).min(y.len - skip_b);
            let (mut x, mut y) = (x.cut(skip_a, skip_a + len), y.cut(skip_b, skip_b + len));
            whole_elements(x, dtype, len)?;
            whole_elements(y, dtype, len)?;
            (skip_a, skip_b) = (skip_a + len, skip_b + len);
            if skip_a == a.parts[i].len {
                (i, skip_a) = (i + 1, 0);
            }
            if skip_b == b.parts[j].len {
                (j, skip_b) = (j + 1, 0);
            }
            if commutes && (x.formula, y.at) < (y.formula, x.at) {
                std::mem::swap(&mut x, &mut y);
            }
            let weight = self.weights[x.formula as usize].saturating_add(self.weights[y.formula as usize]);
            let (phase, shift) = (phase(x.at, dtype), y.at - x.at);
            let made = Formula::Binary { f, dtype, phase, a: x.formula, b: y.formula, shift };
            join(&mut parts, Part { formula: self.number(made, weight.saturating_add(1)), at: x.at, len });
        }
        self.value(parts, tile)
    }
}
