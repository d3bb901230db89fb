//! The extension module `ahbm._core`: the one place where Python and the crates meet.
//!
//! - [`errors`]: findings become exceptions of `ahbm.errors`; panics become typed errors too.
//! - [`machine`], [`program`], [`memory`]: thin classes over the crates of the same names.
//! - [`builder`]: writes a program; [`kernel`] runs a kernel once per body to record it; [`network`] knows the
//!   SIP networks by name.
//! - [`tl`], [`handle`]: what a kernel sees. [`capture`] is the recording behind them, [`operand`] the
//!   checks on arguments, [`origin`] finds the kernel's line behind a call.
//!
//! Laws. No lock is held while Python code can run. Long runs release the interpreter lock. A value's slot
//! is given back exactly when its last handle dies, so that equal kernels record equal bodies.

mod builder;
mod capture;
mod errors;
mod handle;
mod kernel;
mod machine;
mod memory;
mod network;
mod operand;
mod origin;
mod program;
mod tl;

use pyo3::prelude::*;

/// Machines, programs and the recording context of kernels.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::builder::ProgramBuilder;
    #[pymodule_export]
    use super::handle::{Handle, MemoryRef, RecvFuture};
    #[pymodule_export]
    use super::machine::Machine;
    #[pymodule_export]
    use super::memory::Memory;
    #[pymodule_export]
    use super::program::{Program, Timeline};
    #[pymodule_export]
    use super::tl::Tl;
}
