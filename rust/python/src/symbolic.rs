//! Integers that remember how they were computed from the place of a kernel's call.
//!
//! A kernel that is captured for many places at once gets its rank and its cube as [`SymbolicInt`]s. Arithmetic keeps
//! the formula. A comparison is answered for the place of the call, and the answer becomes a condition of the path. All
//! else (an index, a range, a key, a text, a function in C) sees a plain integer, and the formula's value becomes a
//! condition. So whoever fulfils all conditions has recorded the same.

mod number;

pub(crate) use number::{Integer, SymbolicInt};

use crate::origin::{Here, Lines};
use ahbm_program::formula::Function;
use ahbm_program::{Condition, Formulas, OriginId, Term};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An integer operand.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub(crate) value: i64,
    /// Its formula, where it depends on the place.
    pub(crate) term: Option<Term>,
}

impl Operand {
    /// A number.
    pub(crate) const fn plain(value: i64) -> Self {
        Self { value, term: None }
    }
}

/// The path of one kernel call: its formulas and the conditions that led along it.
pub(crate) struct Path(Mutex<State>);

#[derive(Default)]
struct State {
    formulas: Formulas,
    conditions: Vec<Condition>,
    /// Line of every condition.
    asked: Vec<OriginId>,
    /// Values that conditions fix.
    fixed: FxHashMap<Term, i64>,
    lines: Lines,
    closed: bool,
}

/// The end of a path.
pub(crate) struct Walked {
    pub(crate) formulas: Formulas,
    pub(crate) conditions: Vec<Condition>,
    /// Line of every condition.
    pub(crate) asked: Vec<String>,
}

impl Path {
    /// The path of a call, which adds to `formulas`.
    pub(crate) fn new(formulas: Formulas) -> Self {
        Self(Mutex::new(State { formulas, ..State::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the path: its integers are plain from here on.
    pub(crate) fn close(&self) -> Walked {
        let mut state = self.lock();
        state.closed = true;
        let State { formulas, conditions, asked, lines, .. } = std::mem::take(&mut *state);
        state.closed = true;
        let origins = lines.into_origins();
        let asked = asked.into_iter().map(|line| origins.text(line)).collect();
        Walked { formulas, conditions, asked }
    }

    /// Does something with the formulas.
    pub(crate) fn formulas<T>(&self, work: impl FnOnce(&mut Formulas) -> T) -> T {
        work(&mut self.lock().formulas)
    }

    /// The formula of an operand.
    pub(crate) fn term(&self, operand: Operand) -> Term {
        operand.term.unwrap_or_else(|| self.formulas(|formulas| formulas.constant(operand.value)))
    }

    /// The answer of a comparison, which becomes a condition where it depends on the place.
    pub(crate) fn ask(&self, py: Python<'_>, function: Function, a: Operand, b: Operand) -> PyResult<bool> {
        let value = function.apply(a.value, b.value).expect("comparisons have no limits");
        if a.term.is_some() || b.term.is_some() {
            let (a, b) = (self.term(a), self.term(b));
            let term = self.formulas(|formulas| formulas.apply(function, a, b));
            self.fix(py, term, value)?;
        }
        Ok(value != 0)
    }

    /// Makes the value of a formula a condition.
    pub(crate) fn fix(&self, py: Python<'_>, term: Term, value: i64) -> PyResult<()> {
        if self.lock().is_fixed(term) {
            return Ok(());
        }
        let here = Here::now(py)?;
        let mut state = self.lock();
        let line = state.lines.origin(&here);
        state.fixed.insert(term, value);
        state.conditions.push(Condition { term, value });
        state.asked.push(line);
        Ok(())
    }
}

impl State {
    /// True if the value of a formula is the same along the path, or if nobody asks any more.
    fn is_fixed(&self, term: Term) -> bool {
        self.closed || self.fixed.contains_key(&term)
    }
}
