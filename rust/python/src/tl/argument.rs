//! Arguments of `tl` calls that belong to a capture.

use super::Tl;
use crate::capture::{Address, Capture, Recorder};
use crate::handle::{Handle, MemoryRef, not_an_operand, same_capture};
use crate::operand::{self, Fault, Number, fault};
use crate::symbolic::{self, Integer, SymbolicInt};
use ahbm_program::ValueId;
use pyo3::prelude::*;
use std::sync::Arc;

/// A value operand: a handle, or a memory reference that is read first.
pub(super) enum Source<'a> {
    Value(&'a Handle),
    Memory(&'a MemoryRef),
}

impl Source<'_> {
    pub(super) fn tile(&self) -> u32 {
        match self {
            Self::Value(handle) => handle.tile,
            Self::Memory(memory) => memory.tile,
        }
    }

    /// Runs `record` with the operand's value; a value read for it dies afterwards.
    pub(super) fn with<T>(
        &self,
        rec: &mut Recorder,
        record: impl FnOnce(&mut Recorder, ValueId) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match self {
            Self::Value(handle) => record(rec, handle.value),
            Self::Memory(memory) => {
                let value = memory.load(rec);
                let outcome = record(rec, value);
                rec.release(value);
                outcome
            }
        }
    }
}

/// A value operand: a handle, or a number that stands for a value of equal elements.
pub(super) enum Operand<'a> {
    Handle(&'a Handle),
    Number(Number),
}

/// A value of another capture never gets past these functions: its indices would mean nothing here.
impl Tl {
    pub(super) fn source<'a>(&self, py: Python<'_>, value: &'a Bound<'_, PyAny>) -> PyResult<Source<'a>> {
        match value.cast::<MemoryRef>() {
            Ok(memory) => {
                self.own(py, &memory.get().capture)?;
                Ok(Source::Memory(memory.get()))
            }
            Err(_) => self.handle(py, value).map(Source::Value),
        }
    }

    pub(super) fn handle<'a>(&self, py: Python<'_>, value: &'a Bound<'_, PyAny>) -> PyResult<&'a Handle> {
        let handle = value.cast::<Handle>().map_err(|_| self.capture.raise(py, not_an_operand(value)))?.get();
        self.own(py, &handle.capture)?;
        Ok(handle)
    }

    pub(super) fn operand<'a>(&self, py: Python<'_>, value: &'a Bound<'_, PyAny>) -> PyResult<Operand<'a>> {
        match value.cast::<Handle>() {
            Ok(_) => self.handle(py, value).map(Operand::Handle),
            Err(_) => self.number(py, value).map(Operand::Number),
        }
    }

    pub(super) fn own(&self, py: Python<'_>, owner: &Arc<Capture>) -> PyResult<()> {
        self.checked(py, same_capture(owner, &self.capture))
    }

    pub(super) fn number(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Number> {
        Number::parse(value).ok_or_else(|| self.capture.raise(py, not_an_operand(value)))
    }

    /// A non-negative address: a plain int.
    pub(super) fn pointer(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Address> {
        let found = match value.cast::<SymbolicInt>() {
            Ok(symbolic) => {
                let found = symbolic.get().on(py, &self.capture.path)?;
                u64::try_from(found.value).ok().map(|value| Address { value, term: found.term })
            }
            Err(_) => value.extract().ok().map(|value| Address { value, term: None }),
        };
        found.ok_or_else(|| {
            let what = fault("AHBM-K209", format!("{value} is not a pointer"));
            self.capture.raise(py, what.hint("a pointer is the int t_ptr plus a byte offset, or what tl.ref returned"))
        })
    }

    /// The SIPs of a call for several.
    pub(super) fn sips(&self, py: Python<'_>, sips: &Bound<'_, PyAny>) -> PyResult<Vec<symbolic::Operand>> {
        let wrong = || {
            let what = fault("AHBM-K209", format!("sips= is {}, not a list of SIPs", sips.get_type()));
            self.capture.raise(py, what.hint("the numbers of SIPs in an iterable, as range(n)"))
        };
        let mut found = Vec::new();
        for sip in sips.try_iter().map_err(|_| wrong())? {
            let sip: Integer<'_> = sip?.extract().map_err(|_| wrong())?;
            found.push(sip.on(py, &self.capture.path)?);
        }
        Ok(found)
    }

    /// The place at which `recv` also stores its message.
    pub(super) fn copy_target(
        &self,
        py: Python<'_>,
        mode: &str,
        dst: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Address>> {
        let wrong = |fault| Err(self.capture.raise(py, fault));
        match (mode, dst) {
            ("return_slot", None) => Ok(None),
            ("copy_to_dst", Some(dst)) => self.pointer(py, dst).map(Some),
            ("return_slot", Some(_)) => wrong(fault("AHBM-K214", "dst= without mode=\"copy_to_dst\"")),
            ("copy_to_dst", None) => wrong(fault("AHBM-K214", "mode=\"copy_to_dst\" needs dst=, a byte address")),
            _ => wrong(*operand::unknown("AHBM-K214", "mode", mode, &["return_slot", "copy_to_dst"])),
        }
    }

    /// The value of an argument, or its fault at the kernel's line.
    pub(super) fn checked<T>(&self, py: Python<'_>, argument: Result<T, Fault>) -> PyResult<T> {
        argument.map_err(|fault| self.capture.raise(py, *fault))
    }
}
