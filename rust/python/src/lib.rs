//! The extension module `ahbm._core`: the one place where Python and the crates meet.
//!
//! - [`errors`]: findings become exceptions of `ahbm.errors`; panics become typed errors too.
//! - [`machine`], [`program`], [`timeline`], [`memory`]: thin classes over the crates of the same names.
//! - [`synthesis`]: schedules computed from a machine. [`job`]: many programs that share one.
//! - [`gate`]: where the threads of ranks wait for one another.
//! - [`builder`]: writes a program; [`kernel`] runs a kernel once per body to record it; [`network`] knows the
//!   SIP networks by name.
//! - [`formats`]: plans of other projects, read, checked and lowered. [`check`]: captured programs, checked.
//! - [`tl`], [`handle`]: what a kernel sees. [`capture`] is the recording behind them, [`operand`] the
//!   checks on arguments, [`origin`] finds the kernel's line behind a call.
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-K201` | `tl` or a handle used after the kernel returned |
//! | `AHBM-K202` | a handle was asked for data |
//! | `AHBM-K203` | handle of another kernel call |
//! | `AHBM-K204` | pointer outside the tensor's shards |
//! | `AHBM-K205` | memory access with another dtype than the tensor's |
//! | `AHBM-K206` | not a shape |
//! | `AHBM-K207` | unknown dtype |
//! | `AHBM-K208` | unknown direction, or the PE itself |
//! | `AHBM-K209` | operands that do not fit the call |
//! | `AHBM-K210` | the kernel raised an exception (chained) |
//! | `AHBM-K211` | the kernel recursed too deep |
//! | `AHBM-K212` | the kernel's parameters do not fit the call |
//! | `AHBM-K213` | generator or coroutine instead of a plain function |
//! | `AHBM-K214` | unknown op, mode or axis |
//! | `AHBM-K215` | future waited for twice |
//! | `AHBM-B101` | more `tl` calls or operations than the budget |
//! | `AHBM-B102` | tile with too many elements |
//! | `AHBM-B103` | too many views |
//! | `AHBM-C201` … `C205` | builder used up; unknown tier; unknown space; ids of another builder; unknown collective of a schedule |
//! | `AHBM-C210`, `C211` | unknown protocol; unknown limit |
//! | `AHBM-T201` … `T204` | place not on the machine; coordinate outside the group; SIPs do not fill the network; unknown network |
//! | `AHBM-V120` … `V125` | timeline or memory of another program, or without detail or times; bytes outside a buffer; array that is not plain memory; job of unknown steps or launches |
//! | `AHBM-Z001` | a panic inside; a defect of this project |
//!
//! Laws. No lock is held while Python code can run. Long runs release the interpreter lock. A value's slot
//! is given back exactly when its last handle dies, so that equal kernels record equal bodies.

mod builder;
mod capture;
mod check;
mod errors;
mod formats;
mod gate;
mod handle;
mod job;
mod kernel;
mod limit;
mod machine;
mod memory;
mod network;
mod operand;
mod origin;
mod program;
mod recording;
mod synthesis;
mod timeline;
mod tl;

use pyo3::prelude::*;

/// Machines, programs and the recording context of kernels.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::builder::ProgramBuilder;
    #[pymodule_export]
    use super::formats::{Plan, convert_plan, plan_files, plan_limits, read_plan};
    #[pymodule_export]
    use super::gate::{Gate, Gates};
    #[pymodule_export]
    use super::handle::{Handle, MemoryRef, RecvFuture};
    #[pymodule_export]
    use super::job::{Job, JobCall, JobTimes};
    #[pymodule_export]
    use super::limit::Limit;
    #[pymodule_export]
    use super::machine::Machine;
    #[pymodule_export]
    use super::memory::Memory;
    #[pymodule_export]
    use super::program::Program;
    #[pymodule_export]
    use super::recording::write_recording;
    #[pymodule_export]
    use super::synthesis::Schedule;
    #[pymodule_export]
    use super::timeline::{Timeline, categories, check_timeline_name, write_job_timeline};
    #[pymodule_export]
    use super::tl::Tl;
}
